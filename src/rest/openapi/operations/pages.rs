//! Health, the document itself, and its web page.

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
    operation(Get, "/healthz", "isAlive", "Check liveness")
        .about("Fails only if a restart of the process may help: not while the broker reopens its log by itself.")
        .response(200, ResponseSpec::json("The process is alive.", "Health", json!({"status": "ok"})))
}

fn ready() -> OperationSpec {
    operation(Get, "/readyz", "isReady", "Check readiness")
        .about(
            "Ready while every log can be written and the server is not shutting down; otherwise the problem tells the \
                cause and the remedy. `degraded` lists what does not work although requests are served: failing \
                retention, checkpoints or reclaiming, a jump of the wall clock, dispatch that is paused after a restore.",
        )
        .response(200, ResponseSpec::json("It is ready.", "Health", json!({"status": "ready"})))
}

fn document() -> OperationSpec {
    let example = json!({"openapi": "3.1.0", "info": {"title": "Event Broker", "version": "0.1.0"}, "paths": {}});
    operation(Get, "/v1/openapi.json", "getDocument", "This document")
        .about("The OpenAPI document of this server, with the limits of its configuration.")
        .parameter(if_none_match())
        .response(200, ResponseSpec::json("The document.", "Document", example).with(&["ETag", "Cache-Control"]))
        .response(304, unchanged())
}

fn root() -> OperationSpec {
    operation(Get, "/", "getRoot", "Redirect to the documentation")
        .about("Redirects to the documentation.")
        .response(303, ResponseSpec::about("See `/docs/`.").with(&["Location"]))
}

fn docs() -> OperationSpec {
    operation(Get, "/docs", "getDocs", "Swagger UI")
        .about("Redirects to `/docs/`.")
        .response(303, ResponseSpec::about("See `/docs/`.").with(&["Location"]))
}

fn docs_page() -> OperationSpec {
    operation(Get, "/docs/", "getDocsPage", "Swagger UI")
        .about(
            "This document as a web page with which requests can be sent. The page loads nothing from other servers.",
        )
        .parameter(if_none_match())
        .response(200, page("text/html", PAGE))
        .response(304, unchanged().with(&["Content-Security-Policy"]))
}

fn docs_file() -> OperationSpec {
    let name = "The name of the file.";
    operation(Get, "/docs/{file}", "getDocsFile", "Files of Swagger UI")
        .about("A file of the page.")
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
    let known = "The `ETag` of an earlier response: the content is sent only if it has changed.";
    header("If-None-Match", any_text(known), known, "W/\"5f1c2a9be0d34c77\"")
}

fn unchanged() -> ResponseSpec {
    ResponseSpec::about("The content has not changed.").with(&["ETag", "Cache-Control"])
}
