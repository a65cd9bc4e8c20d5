//! Dispatch jobs, tasks, and dispatch as a whole.

use super::BrokerWrites;
use crate::broker::Broker;
use crate::dispatch::{self, JobAction};
use crate::ledger::ReplyRecorder;
use contract::api::{BoxFuture, DispatchJobApi};
use contract::{BlockedGroup, Cursor, DispatchJob, JobFilter, NewTask, Page, ProducerId, Result};

/// The caller of a request that names none.
const UNKNOWN_CALLER: &str = "unknown";

impl BrokerWrites<'_> {
    pub(crate) async fn create_task(self, task: NewTask, recorder: ReplyRecorder<DispatchJob>) -> Result<DispatchJob> {
        self.unrefreshed().jobs(None).create_task(task, recorder).await
    }

    pub(crate) async fn act_on_job(
        self,
        id: &str,
        action: JobAction,
        by: Option<&ProducerId>,
        recorder: ReplyRecorder<DispatchJob>,
    ) -> Result<DispatchJob> {
        self.refreshed().await?.jobs(by).act(id, action, recorder).await
    }

    pub(crate) async fn resume_dispatch(self, by: Option<&ProducerId>, recorder: ReplyRecorder<()>) -> Result<()> {
        let broker = self.refreshed().await?;
        let by = by.map_or(UNKNOWN_CALLER, |by| by.0.as_str());
        dispatch::resume_dispatch(&broker.logs, by, recorder).await
    }
}

impl DispatchJobApi for Broker {
    fn create_task(&self, task: NewTask) -> BoxFuture<'_, Result<DispatchJob>> {
        Box::pin(self.writes().create_task(task, ReplyRecorder::disabled()))
    }

    fn job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(async move {
            self.refresh().await?;
            self.jobs(None).get(id).await
        })
    }

    fn jobs<'a>(
        &'a self,
        filter: &'a JobFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DispatchJob>>> {
        Box::pin(async move {
            self.refresh().await?;
            self.jobs(None).list(filter, cursor, limit).await
        })
    }

    fn blocked_groups<'a>(
        &'a self,
        id: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<BlockedGroup>>> {
        Box::pin(async move {
            self.refresh().await?;
            let found = self.subscriptions(None).find(id)?;
            self.jobs(None).groups(found, cursor, limit).await
        })
    }

    fn retry_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.writes().act_on_job(id, JobAction::Retry, by, ReplyRecorder::disabled()))
    }

    fn cancel_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.writes().act_on_job(id, JobAction::Cancel, by, ReplyRecorder::disabled()))
    }

    fn complete_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.writes().act_on_job(id, JobAction::Complete, by, ReplyRecorder::disabled()))
    }

    fn resume_dispatch<'a>(&'a self, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.writes().resume_dispatch(by, ReplyRecorder::disabled()))
    }
}
