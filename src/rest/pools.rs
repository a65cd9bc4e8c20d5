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

async fn list(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&["limit", "cursor"])?.check_accepts_json()?;
    let wanted = PageQuery::of(&asked)?;
    asked.app.broker.refresh().await?;
    let page = asked.app.broker.subscriptions(None).pools(wanted.cursor.as_ref(), wanted.limit)?;
    pages::page_response(&page, wanted.limit)
}

async fn create(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let pool: Pool = asked.json().await?;
    let made = |pool: &Pool| Reply::created(pool, &format!("/v1/pools/{}", pool.code));
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.respond_with(made, |keep| subscriptions.create_pool(pool, keep)).await
}

async fn show(asked: ApiRequest) -> HandlerResult {
    asked.allow_params(&[])?.check_accepts_json()?;
    asked.app.broker.refresh().await?;
    pages::json_response(&asked.app.broker.subscriptions(None).pool(asked.path_param("code"))?)
}

async fn change(mut asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    let change: PoolChange = asked.json().await?;
    asked.app.broker.refresh().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.respond_with(Reply::ok, |keep| subscriptions.change_pool(asked.path_param("code"), change, keep)).await
}

async fn remove(asked: ApiRequest) -> HandlerResult<Reply> {
    asked.allow_params(&[])?;
    asked.app.broker.refresh().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.respond_with(Reply::no_content, |keep| subscriptions.delete_pool(asked.path_param("code"), keep)).await
}
