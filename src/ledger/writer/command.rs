//! A command: a request to change state. The ledger decides commands in the log's order and returns their answers.

use crate::ledger::decide::decision::Decision;
use contract::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// A request that is decided in the log's order.
pub trait Command: Send + 'static {
    /// What the caller receives once the decision is durable.
    type Answer: Send + 'static;

    /// Decides. Pure: the same command on the same state gives the same answer. It is called again if
    /// another process appended first.
    fn decide(&self, decision: &mut Decision<'_>) -> Result<Self::Answer>;

    /// About how many bytes of memory the command uses while it waits.
    fn bytes(&self) -> usize;
}

/// A command on its way through the writer, whatever its type.
pub(in crate::ledger) trait QueuedCommand: Send {
    /// Decides, or decides again; keeps the answer.
    fn decide(&mut self, decision: &mut Decision<'_>);
    /// Sends the caller the answer if what it depends on is durable, otherwise the error.
    fn answer(self: Box<Self>, durable: Result<(), Error>);
    /// About how many bytes of memory it uses.
    fn bytes(&self) -> usize;
}

/// A command with the channel to its caller.
pub(in crate::ledger) struct SubmittedCommand<C: Command> {
    pub(in crate::ledger) command: C,
    pub(in crate::ledger) reply: oneshot::Sender<Result<C::Answer>>,
    pub(in crate::ledger) answer: Option<Result<C::Answer>>,
    /// The permit for space in the queue; it is released with the answer.
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
        // A caller that has disconnected needs no answer.
        let _ = self.reply.send(answer);
    }

    fn bytes(&self) -> usize {
        self.room.num_permits()
    }
}
