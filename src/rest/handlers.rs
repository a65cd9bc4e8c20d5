//! Handlers: how their work is to be tried, and how they stand.

use super::App;
use super::asked::{Asked, Limits, NO_BODY};
use super::body::Limit;
use super::once::once;
use super::problem::Answer;
use super::rows::{self, Wanted};
use super::told::Told;
use axum::Router;
use axum::routing::get;
use contract::{Handler, Kind, NewHandler, Registered};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What does not stand for itself in a path.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// A handler's body.
const DEFINITION: Limits = |_, _| Limit { bytes: 64 * 1024, too_large: Kind::PayloadTooLarge };

pub(super) fn routes() -> Router<App> {
    Router::new()
        .route("/v1/handlers", get(list))
        .route("/v1/handlers/{name}", get(show).put(once(DEFINITION, put)).delete(once(NO_BODY, remove)))
}

async fn list(asked: Asked) -> Answer {
    asked.takes(&["limit", "cursor"])?.wants_json()?;
    let wanted = Wanted::of(&asked)?;
    let page = asked.app.events().handlers(wanted.cursor.as_ref(), wanted.limit).await?;
    rows::list(&page, wanted.limit)
}

async fn show(asked: Asked) -> Answer {
    asked.takes(&[])?.wants_json()?;
    rows::shown(&asked.app.events().handler(asked.piece("name")).await?)
}

async fn remove(asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    asked.tell(Told::done, |keep| asked.writes().delete_handler(asked.piece("name"), keep)).await
}

async fn put(mut asked: Asked) -> Answer<Told> {
    asked.takes(&[])?;
    let handler: NewHandler = asked.json().await?;
    asked.tell(registered, |keep| asked.writes().put_handler(asked.piece("name"), handler, keep)).await
}

fn registered(registered: &Registered<Handler>) -> Told {
    match registered {
        Registered::Created(made) => {
            let location = format!("/v1/handlers/{}", utf8_percent_encode(&made.name, ESCAPED));
            Told::made(made, &location)
        }
        Registered::Unchanged(known) => Told::shown(known),
    }
}
