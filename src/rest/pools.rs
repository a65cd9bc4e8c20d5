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
    let page = request.app.events().pools(query.cursor.as_ref(), query.limit).await?;
    pages::page_response(&page, query.limit)
}

async fn create(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let pool: Pool = request.json().await?;
    let made = |pool: &Pool| Reply::created(pool, &format!("/v1/pools/{}", pool.code));
    request.respond_with(made, |recorder| request.writes().create_pool(pool, recorder)).await
}

async fn show(request: ApiRequest) -> HandlerResult {
    request.allow_params(&[])?.check_accepts_json()?;
    pages::json_response(&request.app.events().pool(request.path_param("code")).await?)
}

async fn change(mut request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let change: PoolChange = request.json().await?;
    let code = request.path_param("code");
    request.respond_with(Reply::ok, |recorder| request.writes().change_pool(code, change, recorder)).await
}

async fn remove(request: ApiRequest) -> HandlerResult<Reply> {
    request.allow_params(&[])?;
    let code = request.path_param("code");
    request.respond_with(Reply::no_content, |recorder| request.writes().delete_pool(code, recorder)).await
}
