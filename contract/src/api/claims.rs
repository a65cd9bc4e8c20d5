//! Claims: which worker may work on which event.

use super::BoxFuture;
use crate::{
    Claim, ClaimCompletion, ClaimFailure, ClaimOutcome, Completion, Cursor, FencingToken, NewClaim, Page, ProducerId,
    Result,
};

/// Claims.
pub trait ClaimApi: Send + Sync {
    /// Claims an event for a handler, or returns why it cannot be claimed. `producer` is the owner of the claim if the claim
    /// names none.
    fn claim<'a>(&'a self, claim: NewClaim, producer: Option<&'a ProducerId>) -> BoxFuture<'a, Result<ClaimOutcome>>;
    /// Claims several events in one decision per log; one result each. `Err` means that no claim was looked at.
    fn claim_batch<'a>(
        &'a self,
        claims: Vec<NewClaim>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<ClaimOutcome>>>>;
    /// Restarts a claim's lease.
    fn heartbeat<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>>;
    /// Finishes a claim as done. The events that the work has produced and the group's offset are stored with it, or nothing
    /// is. Repeated with the same token it has no second effect.
    fn complete_claim<'a>(
        &'a self,
        claim: &'a str,
        completion: Completion,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Claim>>;
    /// Finishes several claims as done in one decision per log; one result each, each of them atomic by itself.
    fn complete_claims<'a>(
        &'a self,
        completions: Vec<ClaimCompletion>,
        producer: Option<&'a ProducerId>,
    ) -> BoxFuture<'a, Result<Vec<Result<Claim>>>>;
    /// Ends an attempt as failed. The event may be claimed again after its back-off, or becomes a dead letter.
    fn fail_claim<'a>(&'a self, claim: &'a str, failure: ClaimFailure) -> BoxFuture<'a, Result<Claim>>;
    /// Releases a claim unfinished: the event may be claimed again at once, and no attempt is counted.
    fn release_claim<'a>(&'a self, claim: &'a str, token: FencingToken) -> BoxFuture<'a, Result<Claim>>;
    /// One claim that is not finished.
    fn open_claim<'a>(&'a self, claim: &'a str) -> BoxFuture<'a, Result<Claim>>;
    /// A handler's claims that are not finished, in the order of topic and sequence.
    fn open_claims<'a>(
        &'a self,
        handler: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<Claim>>>;
}
