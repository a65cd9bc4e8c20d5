//! Claims.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use crate::response;
use contract::api::{BoxFuture, ClaimApi};
use contract::{
    Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, Completion, Cursor, FencingToken, NewClaim, Page, ProducerId,
    Result,
};
use reqwest::Method;
use serde_json::json;

impl ClaimApi for Client {
    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>> {
        Box::pin(async move {
            self.send_json(self.request(Method::POST, &["claims"], NO_PARAMS).json(&claim).by(producer).keyed()).await
        })
    }

    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>> {
        Box::pin(async move {
            let request = self
                .request(Method::POST, &["claims"], NO_PARAMS)
                .json(&json!({"claims": claims}))
                .by(producer)
                .keyed();
            response::check_count(response::outcomes(&self.send(request).await?.body)?, claims.len())
        })
    }

    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.post_repeatable(&["claims", &custom_method(claim, "heartbeat")], &json!({"token": token})).await
        })
    }

    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.send_json(
                self.request(Method::POST, &["claims", &custom_method(claim, "done")], NO_PARAMS)
                    .json(&completion)
                    .by(producer),
            )
            .await
        })
    }

    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>> {
        Box::pin(async move {
            let request = self
                .request(Method::POST, &["claims:done"], NO_PARAMS)
                .json(&json!({"claims": completions}))
                .by(producer);
            response::check_count(response::claims(&self.send(request).await?.body)?, completions.len())
        })
    }

    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move { self.post_repeatable(&["claims", &custom_method(claim, "fail")], &failure).await })
    }

    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move {
            self.post_keyed(&["claims", &custom_method(claim, "release")], &json!({"token": token})).await
        })
    }

    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(async move { self.get(&["claims", claim], NO_PARAMS).await })
    }

    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>> {
        let mut query = query::page(cursor, limit);
        query::add(&mut query, "handler", Some(handler));
        Box::pin(async move { self.list(&["claims"], &query).await })
    }
}
