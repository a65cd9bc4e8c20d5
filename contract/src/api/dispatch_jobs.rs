//! Dispatch jobs: deliveries of events and tasks to URLs.

use super::BoxFuture;
use crate::{BlockedGroup, Cursor, DispatchJob, JobFilter, NewTask, Page, ProducerId, Result};

/// Dispatch jobs, tasks, and dispatch as a whole.
pub trait DispatchJobApi: Send + Sync {
    /// Creates a task: a payload that is posted to a URL. Returns its job.
    fn create_task(&self, task: NewTask) -> BoxFuture<'_, Result<DispatchJob>>;
    /// One job.
    fn job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DispatchJob>>;
    /// Jobs that the filter selects.
    fn jobs<'a>(
        &'a self,
        filter: &'a JobFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DispatchJob>>>;
    /// The message groups of a subscription (its id or code) in which a failed job blocks the others.
    fn blocked_groups<'a>(
        &'a self,
        id: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<BlockedGroup>>>;
    /// Sends a job again at once.
    fn retry_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>>;
    /// Cancels a job: it is not delivered.
    fn cancel_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>>;
    /// Marks a job as completed without delivering it.
    fn complete_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>>;
    /// Resumes dispatch as a whole, which `restore` leaves paused. Changes nothing if dispatch is not paused.
    fn resume_dispatch<'a>(&'a self, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>>;
}
