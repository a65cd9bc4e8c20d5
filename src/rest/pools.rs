//! Pools: concurrency and rate that subscriptions share.

use super::AppState;
use super::body::BodyLimit;
use super::idempotency::idempotent;
use super::pages::{self, PageQuery};
use super::problem::HandlerResult;
use super::reply::Reply;
use super::request::{ApiRequest, BodyLimitFn, NO_BODY};
use axum::Router;
use axum::routing::get;
use contract::{Kind, Pool, PoolChange};

/// A pool.
const POOL: BodyLimitFn = |_, _| BodyLimit { bytes: 16 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/pools", get(list).post(idempotent(POOL, create)))
        .route("/v1/pools/{code}", get(show).patch(idempotent(POOL, change)).delete(idempotent(NO_BODY, remove)))
}

async fn list(request: ApiRequest) -> HandlerResult {
    request.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let query = PageQuery::of(&request)?;
    request.app.broker.refresh().await?;
    let page = request.app.broker.subscriptions(None).pools(query.cursor.as_ref(), query.limit)?;
    pages::page_response(&page, query.limit)
}

async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let pool: Pool = request.json().await?;
    let made = |pool: &Pool| Reply::created(pool, &format!("/v1/pools/{}", pool.code));
    let subscriptions = request.app.broker.subscriptions(None);
    request.respond_with(made, |recorder| subscriptions.create_pool(pool, recorder)).await
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    request.app.broker.refresh().await?;
    pages::json_response(&request.app.broker.subscriptions(None).pool(request.path_param("code"))?)
}

async fn change(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let change: PoolChange = request.json().await?;
    request.app.broker.refresh().await?;
    let subscriptions = request.app.broker.subscriptions(None);
    request.respond_with(Reply::ok, |recorder| subscriptions.change_pool(request.path_param("code"), change, recorder)).await
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    request.app.broker.refresh().await?;
    let subscriptions = request.app.broker.subscriptions(None);
    request.respond_with(Reply::no_content, |recorder| subscriptions.delete_pool(request.path_param("code"), recorder)).await
}
