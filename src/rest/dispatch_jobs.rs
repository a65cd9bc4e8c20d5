//! Dispatch jobs: routes to list them, to retry, cancel and complete them, and to create tasks.

use super::AppState;
use super::body::BodyLimit;
use super::custom_methods;
use super::events::{producer, with_suspected};
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::{HandlerResult, Problem};
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn};
use crate::dispatch::JobAction;
use crate::secrets::suspected_payload;
use axum::Router;
use axum::routing::get;
use contract::{DispatchJob, Error, JobFilter, JobStatus, Kind, NewTask, Result, limits};
use uuid::Uuid;

/// Largest body of a task.
const TASK: BodyLimitFn =
    |_, _| BodyLimit { bytes: limits::TASK_BYTES_MAX + 16 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/v1/dispatch-jobs", get(list).post(idempotent(TASK, create))).route(
        "/v1/dispatch-jobs/{id}",
        get(show).post(idempotent(TASK, custom_method)).fallback(custom_methods::other_methods("GET, HEAD")),
    )
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["status", "subscription", "event", "group", "limit", "cursor"])?.check_accepts_json()?;
    let (wanted, params) = (PageQuery::of(&request)?, &request.params);
    let filter = JobFilter {
        status: params.one("status")?.map(status).transpose()?,
        subscription: params.one("subscription")?.map(str::to_owned),
        event: params.one("event")?.map(event).transpose()?,
        group: params.one("group")?.map(str::to_owned),
    };
    let page = request.app.events().jobs(&filter, wanted.cursor.as_ref(), wanted.limit).await?;
    pages::page_response(&page, wanted.limit)
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

async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let task: NewTask = request.json().await?;
    let suspected = suspected_payload(task.payload.get());
    let made = move |job: &DispatchJob| {
        with_suspected(Reply::created(job, &format!("/v1/dispatch-jobs/{}", job.id)), &suspected)
    };
    request.respond_with(made, |recorder| request.writes().create_task(task, recorder)).await
}

async fn show(request: ApiRequest) -> HandlerResult {
    let piece = request.path_param("id");
    if let (_, Some(_)) = custom_methods::split(piece) {
        return Err(Problem::not_allowed("POST"));
    }
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().job(piece).await?)
}

/// `POST /v1/dispatch-jobs/{id}:retry`, `:cancel` and `:complete`.
async fn custom_method(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let (id, verb) = custom_methods::split(request.path_param("id"));
    let verb = match verb {
        Some("retry") => JobAction::Retry,
        Some("cancel") => JobAction::Cancel,
        Some("complete") => JobAction::Complete,
        Some(_) => return Err(custom_methods::unknown()),
        None => return Err(Problem::not_allowed("GET, HEAD")),
    };
    let by = producer(request.headers())?;
    request.respond_with(Reply::ok, |recorder| request.writes().act_on_job(id, verb, by.as_ref(), recorder)).await
}
