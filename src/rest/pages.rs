//! Lists of rows, with the cursors of the neighbouring pages.

use super::problem::HandlerResult;
use super::request::ApiRequest;
use axum::Json;
use axum::response::IntoResponse;
use contract::{Cursor, Page, Result};
use serde::Serialize;

/// The page of a list that is requested.
pub(crate) struct PageQuery {
    pub(crate) cursor: Option<Cursor>,
    pub(crate) limit: usize,
}

impl PageQuery {
    pub(crate) fn of(request: &ApiRequest) -> Result<Self> {
        let limit = request.params.limit(request.app.options.limit_default)?;
        Ok(Self { cursor: request.params.cursor()?, limit })
    }
}

/// `{"items":[…],"page_info":{…}}`.
#[derive(Serialize)]
struct ItemsPage<'a, T> {
    items: &'a [T],
    page_info: PageInfo,
}

/// The cursors of the neighbouring pages.
#[derive(Serialize)]
pub(crate) struct PageInfo {
    next_cursor: Option<String>,
    prev_cursor: Option<String>,
    limit: usize,
}

impl PageInfo {
    pub(crate) fn of<T>(page: &Page<T>, limit: usize) -> Self {
        let text = |cursor: &Option<Cursor>| cursor.as_ref().map(ToString::to_string);
        Self { next_cursor: text(&page.next), prev_cursor: text(&page.prev), limit }
    }
}

/// A page of a list.
pub(crate) fn page_response<T: Serialize>(page: &Page<T>, limit: usize) -> HandlerResult {
    json_response(&ItemsPage { items: &page.items, page_info: PageInfo::of(page, limit) })
}

/// A response with a resource.
pub(crate) fn json_response<T: Serialize>(thing: &T) -> HandlerResult {
    Ok(Json(thing).into_response())
}
