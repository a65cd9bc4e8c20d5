//! Dispatch jobs, tasks, and dispatch as a whole.

use crate::client::Client;
use crate::query;
use crate::requests::{NO_PARAMS, custom_method};
use contract::api::{BoxFuture, DispatchJobApi};
use contract::{BlockedGroup, Cursor, DispatchJob, JobFilter, NewTask, Page, ProducerId, Result};
use reqwest::Method;

impl Client {
    async fn act_on_job(&self, id: &str, action: &str, by: Option<&ProducerId>) -> Result<DispatchJob> {
        let path = custom_method(id, action);
        self.send_json(self.request(Method::POST, &["dispatch-jobs", &path], NO_PARAMS).by(by).keyed()).await
    }
}

impl DispatchJobApi for Client {
    fn create_task(&self, task: NewTask) -> BoxFuture<'_, Result<DispatchJob>> {
        Box::pin(async move { self.post_keyed(&["dispatch-jobs"], &task).await })
    }

    fn job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(async move { self.get(&["dispatch-jobs", id], NO_PARAMS).await })
    }

    fn jobs<'a>(
        &'a self,
        filter: &'a JobFilter,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<DispatchJob>>> {
        let query = query::of_jobs(filter, cursor, limit);
        Box::pin(async move { self.list(&["dispatch-jobs"], &query).await })
    }

    fn blocked_groups<'a>(
        &'a self,
        id: &'a str,
        cursor: Option<&'a Cursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Page<BlockedGroup>>> {
        let query = query::page(cursor, limit);
        Box::pin(async move { self.list(&["subscriptions", id, "groups"], &query).await })
    }

    fn retry_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.act_on_job(id, "retry", by))
    }

    fn cancel_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.act_on_job(id, "cancel", by))
    }

    fn complete_job<'a>(&'a self, id: &'a str, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<DispatchJob>> {
        Box::pin(self.act_on_job(id, "complete", by))
    }

    fn resume_dispatch<'a>(&'a self, by: Option<&'a ProducerId>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let path = ["server", "dispatch:resume"];
            self.send(self.request(Method::POST, &path, NO_PARAMS).by(by).keyed()).await.map(drop)
        })
    }
}
