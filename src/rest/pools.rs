//! Pools: concurrency and rate that subscriptions share.

use super::App;
use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::once::once;
use super::problem::Answer;
use super::rows::{self, Wanted};
use super::told::Told;
use axum::Router;
use axum::routing::get;
use contract::{Kind, Pool, PoolChange};

/// A pool.
const POOL: Limits = |_, _| Limit { bytes: 16 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/pools", get(list).post(once(POOL, create)))
        .route("/v1/pools/{code}", get(show).patch(once(POOL, change)).delete(once(NO_BODY, remove)))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    asked.app.broker.caught_up().await?;
    let page = asked.app.broker.subscriptions(None).pools(wanted.cursor.as_ref(), wanted.limit)?;
    rows::list(&page, wanted.limit)
}

async fn create(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let pool: Pool = asked.json().await?;
    let made = |pool: &Pool| Told::made(pool, &format!("/v1/pools/{}", pool.code));
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.tell(made, |keep| subscriptions.create_pool(pool, keep)).await
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    asked.app.broker.caught_up().await?;
    rows::shown(&asked.app.broker.subscriptions(None).pool(asked.piece("code"))?)
}

async fn change(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let change: PoolChange = asked.json().await?;
    asked.app.broker.caught_up().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.tell(Told::shown, |keep| subscriptions.change_pool(asked.piece("code"), change, keep)).await
}

async fn remove(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    asked.app.broker.caught_up().await?;
    let subscriptions = asked.app.broker.subscriptions(None);
    asked.tell(Told::done, |keep| subscriptions.delete_pool(asked.piece("code"), keep)).await
}
