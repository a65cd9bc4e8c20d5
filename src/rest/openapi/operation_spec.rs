//! Builders of operations: method and path, parameters, body, responses and problems.
//!
//! - Every operation has the problems of every request ([`EVERYWHERE`]), those with a body a few more; others are listed one by
//!   one.
//! - Every response has the headers of its trace.
//! - Every operation that writes has the parameter `Idempotency-Key`, and may return a stored response.

use super::headers;
use super::parameters;
use super::problems::{EVERYWHERE, SharedResponses, UNDER_A_KEY, WHEN_CHANGING, WITH_A_BODY};
use super::schema_spec::{SchemaSpec, schema_ref};
use contract::Kind;
use serde_json::Value;
use std::collections::BTreeSet;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::{Content, ContentBuilder, Paths, Required, Response, ResponseBuilder};

/// JSON.
pub(super) const JSON: &str = "application/json";

/// An operation under construction.
pub(super) struct OperationSpec {
    method: HttpMethod,
    path: &'static str,
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
    description: String,
    parameters: Vec<Parameter>,
    shared_parameters: Vec<&'static str>,
    body: Option<RequestBody>,
    answers: Vec<(u16, Response)>,
    refusals: BTreeSet<Kind>,
}

/// An operation with its method, path, id and summary.
pub(super) fn operation(
    method: HttpMethod,
    path: &'static str,
    id: &'static str,
    summary: &'static str,
) -> OperationSpec {
    let (mut shared_parameters, mut refusals) = (vec!["traceparent"], BTreeSet::from(EVERYWHERE));
    if method != HttpMethod::Get {
        shared_parameters.push("Idempotency-Key");
        refusals.extend(UNDER_A_KEY);
        refusals.extend(WHEN_CHANGING);
    }
    OperationSpec {
        method,
        path,
        tag: "",
        id,
        summary,
        description: String::new(),
        parameters: Vec::new(),
        shared_parameters,
        body: None,
        answers: Vec::new(),
        refusals,
    }
}

impl OperationSpec {
    /// With its tag.
    pub(super) const fn tag(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// With a description.
    pub(super) fn about(mut self, description: impl Into<String>) -> Self {
        self.description = description.into();
        self
    }

    /// With a parameter of its own.
    pub(super) fn parameter(mut self, parameter: Parameter) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// With parameters that several operations share.
    pub(super) fn shared_parameters(mut self, names: &[&'static str]) -> Self {
        self.shared_parameters.extend(names);
        self
    }

    /// With these problems.
    pub(super) fn problems(mut self, kinds: &[Kind]) -> Self {
        self.refusals.extend(kinds);
        self
    }

    /// With a body.
    pub(super) fn body(mut self, body: BodySpec) -> Self {
        self.refusals.extend(WITH_A_BODY);
        self.body = Some(body.0.build());
        self
    }

    /// With a response.
    pub(super) fn response(mut self, status: u16, answer: ResponseSpec) -> Self {
        let answer = match self.method {
            HttpMethod::Get => answer,
            _ => answer.with(&["Idempotent-Replayed"]),
        };
        self.answers.push((status, answer.0.build()));
        self
    }

    /// Of a list: with the parameters of a page, a page as its response, and the problems of lists.
    pub(super) fn paged(self, description: &str, schema: &str, example: Value) -> Self {
        self.shared_parameters(&["limit", "cursor"])
            .response(200, ResponseSpec::json(description, schema, example))
            .problems(&[Kind::NotAcceptable, Kind::Validation])
    }

    /// Of one resource: with the resource as its response, and the problems of reading one.
    pub(super) fn shown(self, description: &str, schema: &str, example: Value) -> Self {
        self.response(200, ResponseSpec::json(description, schema, example)).problems(&[
            Kind::NotFound,
            Kind::NotAcceptable,
            Kind::Validation,
        ])
    }

    /// Adds it to the paths, and its problems to the shared responses.
    pub(super) fn add_to(self, paths: &mut Paths, shared: &mut SharedResponses) {
        let mut operation = OperationBuilder::new()
            .tag(self.tag)
            .operation_id(Some(self.id))
            .summary(Some(self.summary))
            .description(Some(self.description))
            .request_body(self.body);
        for parameter in self.parameters {
            operation = operation.parameter(parameter);
        }
        for name in self.shared_parameters {
            operation = operation.parameter_ref(parameters::reference(name));
        }
        for (status, answer) in self.answers {
            operation = operation.response(status.to_string(), answer);
        }
        for (status, refusal) in shared.responses(&self.refusals) {
            operation = operation.response(status.to_string(), refusal);
        }
        paths.add_path_operation(self.path, vec![self.method], operation);
    }
}

/// A body under construction.
pub(super) struct BodySpec(RequestBodyBuilder);

impl BodySpec {
    /// A required body.
    pub(super) fn about(description: &str) -> Self {
        Self(RequestBodyBuilder::new().description(Some(description)).required(Some(Required::True)))
    }

    /// It is optional.
    pub(super) fn or_none(self) -> Self {
        Self(self.0.required(Some(Required::False)))
    }

    /// With this media type and the named schema.
    pub(super) fn of(self, media: &str, schema: &str, example: Value) -> Self {
        Self(self.0.content(media, content(schema, example)))
    }

    /// With this media type and schema.
    pub(super) fn shaped(self, media: &str, shape: SchemaSpec, example: Value) -> Self {
        Self(self.0.content(media, ContentBuilder::new().schema(Some(shape)).example(Some(example)).build()))
    }
}

/// A response under construction.
pub(super) struct ResponseSpec(ResponseBuilder);

impl ResponseSpec {
    pub(super) fn about(description: &str) -> Self {
        Self(headers::on_every(ResponseBuilder::new().description(description)))
    }

    /// JSON of the named schema.
    pub(super) fn json(description: &str, schema: &str, example: Value) -> Self {
        Self::about(description).of(JSON, schema, example)
    }

    /// With this media type and the named schema.
    pub(super) fn of(self, media: &str, schema: &str, example: Value) -> Self {
        Self(self.0.content(media, content(schema, example)))
    }

    /// With this media type and schema.
    pub(super) fn shaped(self, media: &str, shape: SchemaSpec, example: Value) -> Self {
        Self(self.0.content(media, ContentBuilder::new().schema(Some(shape)).example(Some(example)).build()))
    }

    /// With these headers, which are optional.
    pub(super) fn with(self, names: &[&str]) -> Self {
        let with = |response: ResponseBuilder, name: &&str| response.header_ref(*name, headers::reference(name));
        Self(names.iter().fold(self.0, with))
    }
}

fn content(schema: &str, example: Value) -> Content {
    ContentBuilder::new().schema(Some(schema_ref(schema))).example(Some(example)).build()
}
