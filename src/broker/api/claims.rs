//! Claims.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, ClaimApi};
use contract::{
    Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, Completion, Cursor, FencingToken, NewClaim, Page, ProducerId,
    Result,
};

impl BrokerWrites<'_> {
    pub(crate) async fn claim(
        self,
        claim: NewClaim,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<ClaimOutcome>,
    ) -> Result<ClaimOutcome> {
        let (claim, keep) = (&claim, &recorder);
        self.with_refresh(|broker| async move { broker.claims(producer).claim(claim.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn claim_batch(
        self,
        claims: Vec<NewClaim>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Vec<Result<ClaimOutcome>>>,
    ) -> Result<Vec<Result<ClaimOutcome>>> {
        self.unrefreshed().claims(producer).claim_batch(claims, recorder).await
    }

    pub(crate) async fn heartbeat(
        self,
        claim: &str,
        token: FencingToken,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let recorder = &recorder;
        self.with_refresh(|broker| async move { broker.claims(None).heartbeat(claim, token, recorder.clone()).await })
            .await
    }

    pub(crate) async fn complete_claim(
        self,
        claim: &str,
        completion: Completion,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (done, keep) = (&completion, &recorder);
        self.with_refresh(
            |broker| async move { broker.claims(producer).complete(claim, done.clone(), keep.clone()).await },
        )
        .await
    }

    pub(crate) async fn complete_claims(
        self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&ProducerId>,
        recorder: ReplyRecorder<Vec<Result<Claim>>>,
    ) -> Result<Vec<Result<Claim>>> {
        self.unrefreshed().claims(producer).complete_batch(completions, recorder).await
    }

    pub(crate) async fn fail_claim(
        self,
        claim: &str,
        failure: ClaimFailure,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let (failure, keep) = (&failure, &recorder);
        self.with_refresh(|broker| async move { broker.claims(None).fail(claim, failure.clone(), keep.clone()).await })
            .await
    }

    pub(crate) async fn release_claim(
        self,
        claim: &str,
        token: FencingToken,
        recorder: ReplyRecorder<Claim>,
    ) -> Result<Claim> {
        let recorder = &recorder;
        self.with_refresh(|broker| async move { broker.claims(None).release(claim, token, recorder.clone()).await })
            .await
    }
}

impl ClaimApi for Broker {
    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>> {
        Box::pin(self.writes().claim(claim, producer, ReplyRecorder::disabled()))
    }

    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>> {
        Box::pin(self.writes().claim_batch(claims, producer, ReplyRecorder::disabled()))
    }

    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().heartbeat(claim, token, ReplyRecorder::disabled()))
    }

    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().complete_claim(claim, completion, producer, ReplyRecorder::disabled()))
    }

    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>> {
        Box::pin(self.writes().complete_claims(completions, producer, ReplyRecorder::disabled()))
    }

    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().fail_claim(claim, failure, ReplyRecorder::disabled()))
    }

    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.writes().release_claim(claim, token, ReplyRecorder::disabled()))
    }

    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>> {
        Box::pin(self.with_refresh(move || async move { self.claims(None).get(claim).await }))
    }

    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>> {
        Box::pin(async move { self.claims(None).list(handler, cursor, limit) })
    }
}
