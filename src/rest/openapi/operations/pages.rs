//! Health, the document itself, and the pages for people.

use crate::rest::openapi::operation::{Answer, Op, op};
use crate::rest::openapi::parameters::{header, path};
use crate::rest::openapi::shape::any_text;
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::Get;
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Server";
const PAGE: &str = "<!DOCTYPE html><html lang=\"en\"><head><title>Swagger UI</title></head><body></body></html>";

pub(super) fn all() -> Vec<Op> {
    vec![alive(), ready(), document(), root(), docs(), docs_page(), docs_file()]
}

fn alive() -> Op {
    op(Get, "/healthz", "isAlive", "Does the process live?")
        .about(
            "Fails only where a restart of the process may help: not while the broker opens its log again by itself.",
        )
        .answers(200, Answer::json("It lives.", "Health", json!({"status": "ok"})))
}

fn ready() -> Op {
    op(Get, "/readyz", "isReady", "Can it be asked for work?")
        .about(
            "Ready while every log can be written and the server is not on its way out; otherwise the problem says what is \
            wrong and what helps. What does not work though requests are served is listed in `degraded`: retention, \
            checkpoints or reclaiming that fail, a wall clock that jumped, dispatch that is paused after a restore.",
        )
        .answers(200, Answer::json("It is ready.", "Health", json!({"status": "ready"})))
}

fn document() -> Op {
    let example = json!({"openapi": "3.1.0", "info": {"title": "Event Broker", "version": "0.1.0"}, "paths": {}});
    op(Get, "/v1/openapi.json", "getDocument", "This document")
        .about("The OpenAPI document of this server, with the limits that are in force.")
        .takes(if_none_match())
        .answers(200, Answer::json("The document.", "Document", example).with(&["ETag", "Cache-Control"]))
        .answers(304, unchanged())
}

fn root() -> Op {
    op(Get, "/", "getRoot", "The first page")
        .about("Leads to the documentation.")
        .answers(303, Answer::about("See `/docs/`.").with(&["Location"]))
}

fn docs() -> Op {
    op(Get, "/docs", "getDocs", "Swagger UI")
        .about("Leads to `/docs/`.")
        .answers(303, Answer::about("See `/docs/`.").with(&["Location"]))
}

fn docs_page() -> Op {
    op(Get, "/docs/", "getDocsPage", "Swagger UI")
        .about("This document to read and to try. Nothing of the page is fetched from elsewhere.")
        .takes(if_none_match())
        .answers(200, page("text/html", PAGE))
        .answers(304, unchanged().with(&["Content-Security-Policy"]))
}

fn docs_file() -> Op {
    let name = "A file of the page.";
    op(Get, "/docs/{file}", "getDocsFile", "Files of Swagger UI")
        .about("What the page is made of.")
        .takes(path("file", any_text(name).not_empty(), name, "swagger-ui.css"))
        .answers(
            200,
            page("text/css", ".swagger-ui {}")
                .shaped("text/html", content(PAGE), json!(PAGE))
                .shaped("text/javascript", content("window.onload = () => {};"), json!("window.onload = () => {};"))
                .shaped("image/png", content("PNG"), json!("PNG")),
        )
        .takes(if_none_match())
        .answers(304, unchanged().with(&["Content-Security-Policy"]))
        .refuses(&[Kind::NotFound])
}

fn content(example: &str) -> crate::rest::openapi::shape::Shape {
    any_text("The file.").like(example)
}

fn page(media: &str, example: &str) -> Answer {
    let headers = ["Content-Security-Policy", "ETag", "Cache-Control"];
    Answer::about("The file.").shaped(media, content(example), json!(example)).with(&headers)
}

fn if_none_match() -> Parameter {
    let known = "An `ETag` of an answer before: the content is sent only if it is another by now.";
    header("If-None-Match", any_text(known), known, "W/\"5f1c2a9be0d34c77\"")
}

fn unchanged() -> Answer {
    Answer::about("It is what the caller has.").with(&["ETag", "Cache-Control"])
}
