//! A command: what somebody wants decided. The ledger runs it in the log's order and brings back the answer.

use crate::ledger::decide::decision::Decision;
use contract::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Something to be decided in the log's order.
pub trait Command: Send + 'static {
    /// What the caller is told once the decision is durable.
    type Answer: Send + 'static;

    /// Decides. Pure: the same decision on the same state gives the same answer, and it may be asked again when
    /// another process was faster.
    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer>;

    /// About how many bytes it holds in memory while it waits.
    fn bytes(&self) -> usize;
}

/// A command on its way through the writer, whatever its type.
pub(in crate::ledger) trait QueuedCommand: Send {
    /// Decides, or decides anew; keeps the answer.
    fn decide(&mut self, decision: &mut Decision<'_>);
    /// Tells the caller: the answer if what it rests on is durable, else why not.
    fn answer(self: Box<Self>, durable: Result<(), Error>);
    /// About how many bytes it holds.
    fn bytes(&self) -> usize;
}

/// A command with its caller.
pub(in crate::ledger) struct SubmittedCommand<C: Command> {
    pub(in crate::ledger) command: C,
    pub(in crate::ledger) reply: oneshot::Sender<Result<C::Answer>>,
    pub(in crate::ledger) answer: Option<Result<C::Answer>>,
    /// Room in the queue; given back when the answer is.
    pub(in crate::ledger) room: OwnedSemaphorePermit,
}

impl<C: Command> QueuedCommand for SubmittedCommand<C> {
    fn decide(&mut self, decision: &mut Decision<'_>) {
        let mark = decision.mark();
        let answer = self.command.decide(decision);
        if answer.is_err() {
            decision.undo(mark);
        }
        self.answer = Some(answer);
    }

    fn answer(self: Box<Self>, durable: Result<(), Error>) {
        let answer = match (durable, self.answer) {
            (Ok(()), Some(answer)) => answer,
            (Ok(()), None) => return,
            (Err(error), _) => Err(error),
        };
        // A caller that hung up wants no answer.
        let _ = self.reply.send(answer);
    }

    fn bytes(&self) -> usize {
        self.room.num_permits()
    }
}
