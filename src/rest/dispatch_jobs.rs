//! Dispatch jobs: what is delivered, what failed, and what a person does about it; and tasks.

use super::App;
use super::asked::{Asked, Limits};
use super::body::Limit;
use super::events::producer;
use super::once::once;
use super::problem::{Answer, Problem};
use super::rows::{self, Wanted};
use super::told::Told;
use super::verb;
use crate::dispatch::JobVerb;
use axum::Router;
use axum::routing::get;
use contract::{DispatchJob, Error, JobFilter, JobStatus, Kind, NewTask, Result, limits};
use uuid::Uuid;

/// A task with its payload.
const TASK: Limits = |_, _| Limit { bytes: limits::TASK_BYTES_MAX + 16 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/dispatch-jobs", get(list).post(once(TASK, create)))
        .route("/v1/dispatch-jobs/{id}", get(show).post(once(TASK, act)).fallback(verb::other_methods("GET, HEAD")))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["status", "subscription", "event", "group", "limit", "cursor"])?.wants_json()?;
    let (wanted, params) = (Wanted::of(&asked)?, &asked.params);
    let filter = JobFilter {
        status: params.one("status")?.map(status).transpose()?,
        subscription: params.one("subscription")?.map(str::to_owned),
        event: params.one("event")?.map(event).transpose()?,
        group: params.one("group")?.map(str::to_owned),
    };
    asked.app.broker.caught_up().await?;
    let page = asked.app.broker.jobs(None).list(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

fn status(text: &str) -> Result<JobStatus> {
    let found = JobStatus::ALL.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| {
        let words = JobStatus::ALL.map(JobStatus::as_str).join(", ");
        Error::invalid("/status", format!("must be one of {words}"))
    })
}

fn event(text: &str) -> Result<Uuid> {
    Uuid::try_parse(text).map_err(|_| Error::invalid("/event", "must be a UUID"))
}

async fn create(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let task: NewTask = asked.json().await?;
    let made = |job: &DispatchJob| Told::made(job, &format!("/v1/dispatch-jobs/{}", job.id));
    let jobs = asked.app.broker.jobs(None);
    asked.tell(made, |keep| jobs.create_task(task, keep)).await
}

async fn show(asked: Asked) -> Answer {
    let piece = asked.piece("id");
    if let (_, Some(_)) = verb::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    asked.takes(&[])?.wants_json()?;
    asked.app.broker.caught_up().await?;
    rows::shown(&asked.app.broker.jobs(None).get(piece).await?)
}

/// `POST /v1/dispatch-jobs/{id}:retry`, `:cancel` and `:complete`.
async fn act(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let (id, verb) = verb::split(asked.piece("id"));
    let verb = match verb {
        Some("retry") => JobVerb::Retry,
        Some("cancel") => JobVerb::Cancel,
        Some("complete") => JobVerb::Complete,
        Some(_) => return Err(verb::unknown()),
        None => return Err(Problem::not_allowed("GET, HEAD")),
    };
    let by = producer(asked.headers())?;
    asked.app.broker.caught_up().await?;
    let jobs = asked.app.broker.jobs(by.as_ref());
    asked.tell(Told::shown, |keep| jobs.act(id, verb, keep)).await
}
