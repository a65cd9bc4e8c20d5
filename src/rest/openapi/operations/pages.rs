//! Health, the document itself, and the pages for people.

use crate::rest::openapi::operation_spec::{OperationSpec, ResponseSpec, operation};
use crate::rest::openapi::parameters::{header, path};
use crate::rest::openapi::schema_spec::any_text;
use contract::Kind;
use serde_json::json;
use utoipa::openapi::HttpMethod::Get;
use utoipa::openapi::path::Parameter;

pub(super) const TAG: &str = "Server";
const PAGE: &str = "<!DOCTYPE html><html lang=\"en\"><head><title>Swagger UI</title></head><body></body></html>";

pub(super) fn all() -> Vec<OperationSpec> {
    vec![alive(), ready(), document(), root(), docs(), docs_page(), docs_file()]
}

fn alive() -> OperationSpec {
    operation(Get, "/healthz", "isAlive", "Does the process live?")
        .about(
            "Fails only where a restart of the process may help: not while the broker opens its log again by itself.",
        )
        .response(200, ResponseSpec::json("It lives.", "Health", json!({"status": "ok"})))
}

fn ready() -> OperationSpec {
    operation(Get, "/readyz", "isReady", "Can it be asked for work?")
        .about(
            "Ready while every log can be written and the server is not on its way out; otherwise the problem says what is \
            wrong and what helps. What does not work though requests are served is listed in `degraded`: retention, \
            checkpoints or reclaiming that fail, a wall clock that jumped, dispatch that is paused after a restore.",
        )
        .response(200, ResponseSpec::json("It is ready.", "Health", json!({"status": "ready"})))
}

fn document() -> OperationSpec {
    let example = json!({"openapi": "3.1.0", "info": {"title": "Event Broker", "version": "0.1.0"}, "paths": {}});
    operation(Get, "/v1/openapi.json", "getDocument", "This document")
        .about("The OpenAPI document of this server, with the limits that are in force.")
        .parameter(if_none_match())
        .response(200, ResponseSpec::json("The document.", "Document", example).with(&["ETag", "Cache-Control"]))
        .response(304, unchanged())
}

fn root() -> OperationSpec {
    operation(Get, "/", "getRoot", "The first page")
        .about("Leads to the documentation.")
        .response(303, ResponseSpec::about("See `/docs/`.").with(&["Location"]))
}

fn docs() -> OperationSpec {
    operation(Get, "/docs", "getDocs", "Swagger UI")
        .about("Leads to `/docs/`.")
        .response(303, ResponseSpec::about("See `/docs/`.").with(&["Location"]))
}

fn docs_page() -> OperationSpec {
    operation(Get, "/docs/", "getDocsPage", "Swagger UI")
        .about("This document to read and to try. Nothing of the page is fetched from elsewhere.")
        .parameter(if_none_match())
        .response(200, page("text/html", PAGE))
        .response(304, unchanged().with(&["Content-Security-Policy"]))
}

fn docs_file() -> OperationSpec {
    let name = "A file of the page.";
    operation(Get, "/docs/{file}", "getDocsFile", "Files of Swagger UI")
        .about("What the page is made of.")
        .parameter(path("file", any_text(name).not_empty(), name, "swagger-ui.css"))
        .response(
            200,
            page("text/css", ".swagger-ui {}")
                .shaped("text/html", content(PAGE), json!(PAGE))
                .shaped("text/javascript", content("window.onload = () => {};"), json!("window.onload = () => {};"))
                .shaped("image/png", content("PNG"), json!("PNG")),
        )
        .parameter(if_none_match())
        .response(304, unchanged().with(&["Content-Security-Policy"]))
        .problems(&[Kind::NotFound])
}

fn content(example: &str) -> crate::rest::openapi::schema_spec::SchemaSpec {
    any_text("The file.").example(example)
}

fn page(media: &str, example: &str) -> ResponseSpec {
    let headers = ["Content-Security-Policy", "ETag", "Cache-Control"];
    ResponseSpec::about("The file.").shaped(media, content(example), json!(example)).with(&headers)
}

fn if_none_match() -> Parameter {
    let known = "An `ETag` of an answer before: the content is sent only if it is another by now.";
    header("If-None-Match", any_text(known), known, "W/\"5f1c2a9be0d34c77\"")
}

fn unchanged() -> ResponseSpec {
    ResponseSpec::about("It is what the caller has.").with(&["ETag", "Cache-Control"])
}
