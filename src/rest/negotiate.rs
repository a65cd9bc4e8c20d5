//! Content negotiation: the format of a request, and the formats that its caller accepts.

use contract::{Error, Kind, MediaType, Result};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};

/// JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
/// One CloudEvent, structured.
pub(crate) const CLOUD_EVENT: HeaderValue = HeaderValue::from_static("application/cloudevents+json; charset=utf-8");
/// Several CloudEvents.
pub(crate) const CLOUD_EVENTS: HeaderValue =
    HeaderValue::from_static("application/cloudevents-batch+json; charset=utf-8");

/// The format of a body with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestFormat {
    Json,
    CloudEvent,
    CloudEvents,
    /// The event's members are headers, the body is its `data`.
    BinaryCloudEvent,
}

/// The format of a response with events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResponseFormat {
    Json,
    CloudEvents,
}

/// A request with one of these headers and a JSON body is a CloudEvent in binary mode.
const REQUIRED: [&str; 4] = ["ce-specversion", "ce-id", "ce-source", "ce-type"];

/// The format of a body with events.
pub(crate) fn request_format(headers: &HeaderMap) -> Result<RequestFormat> {
    let text = media_text(headers);
    let media = MediaType::parse(text).ok_or_else(unsupported)?;
    let cloud_events = match media.essence() {
        "application/cloudevents+json" => RequestFormat::CloudEvent,
        "application/cloudevents-batch+json" => RequestFormat::CloudEvents,
        _ if REQUIRED.iter().any(|name| headers.contains_key(*name)) && media.is_json() => {
            RequestFormat::BinaryCloudEvent
        }
        media if is_json(media) => return Ok(RequestFormat::Json),
        _ => return Err(unsupported()),
    };
    match media.is_utf8() {
        true => Ok(cloud_events),
        false => Err(Error::new(Kind::UnsupportedMediaType, "Send CloudEvents in UTF-8.")),
    }
}

/// Refuses a body that is not JSON.
pub(crate) fn expect_json(headers: &HeaderMap) -> Result<()> {
    let media = media_type(headers);
    match is_json(&media) || media == "application/merge-patch+json" {
        true => Ok(()),
        false => Err(unsupported()),
    }
}

/// The format that the caller accepts; JSON if it accepts several.
pub(crate) fn response_format(headers: &HeaderMap) -> Result<ResponseFormat> {
    let mut cloud_events = false;
    let mut accepts_any = false;
    for range in
        headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','))
    {
        let (media, parameters) = range.split_once(';').unwrap_or((range, ""));
        if parameters.split(';').any(|parameter| matches!(parameter.trim(), "q=0" | "q=0.0" | "q=0.00" | "q=0.000")) {
            continue;
        }
        accepts_any = true;
        match media.trim().to_ascii_lowercase().as_str() {
            "*/*" | "application/*" | "application/json" => return Ok(ResponseFormat::Json),
            "application/cloudevents-batch+json" | "application/cloudevents+json" => cloud_events = true,
            _ => (),
        }
    }
    match (cloud_events, accepts_any || headers.contains_key(ACCEPT)) {
        (true, _) => Ok(ResponseFormat::CloudEvents),
        (false, false) => Ok(ResponseFormat::Json),
        (false, true) => Err(not_acceptable()),
    }
}

/// Refuses callers that do not accept JSON.
pub(crate) fn expect_json_accepted(headers: &HeaderMap) -> Result<()> {
    match response_format(headers)? {
        ResponseFormat::Json => Ok(()),
        ResponseFormat::CloudEvents => Err(not_acceptable()),
    }
}

/// Whether a body is several CloudEvents.
pub(crate) fn is_cloud_events(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/cloudevents-batch+json")
}

/// The media type of a body that is not plain JSON.
pub(crate) fn non_json_media(headers: &HeaderMap) -> Option<String> {
    Some(media_type(headers)).filter(|media| !is_json(media) && media != "application/merge-patch+json")
}

fn media_type(headers: &HeaderMap) -> String {
    media_text(headers).split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The `Content-Type` of a body; JSON without one.
pub(crate) fn media_text(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).map_or("application/json", |value| value.to_str().unwrap_or_default())
}

fn is_json(media: &str) -> bool {
    media == "application/json"
}

fn unsupported() -> Error {
    let detail = "Send application/json; events also as application/cloudevents+json, as \
        application/cloudevents-batch+json, or with `ce-` headers and a JSON body.";
    Error::new(Kind::UnsupportedMediaType, detail)
}

fn not_acceptable() -> Error {
    let detail =
        "Accept application/json; where events are read, application/cloudevents-batch+json is supported, too.";
    Error::new(Kind::NotAcceptable, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn the_format_of_a_body_follows_from_its_headers() {
        for (pairs, expected) in [
            (&[][..], Some(RequestFormat::Json)),
            (&[("content-type", "application/json; charset=utf-8")], Some(RequestFormat::Json)),
            (&[("content-type", "Application/CloudEvents+JSON")], Some(RequestFormat::CloudEvent)),
            (&[("content-type", "application/cloudevents-batch+json")], Some(RequestFormat::CloudEvents)),
            (&[("content-type", "application/json"), ("ce-specversion", "1.0")], Some(RequestFormat::BinaryCloudEvent)),
            (
                &[("content-type", "application/vnd.acme+json"), ("ce-type", "a.b")],
                Some(RequestFormat::BinaryCloudEvent),
            ),
            (&[("content-type", "application/cloudevents+json"), ("ce-id", "1")], Some(RequestFormat::CloudEvent)),
            (&[("content-type", "application/vnd.acme+json")], None),
            (&[("content-type", "application/json; charset=iso-8859-1"), ("ce-id", "1")], None),
            (&[("content-type", "application/cloudevents+json; charset=iso-8859-1")], None),
            (&[("content-type", "notjson"), ("ce-id", "1")], None),
            (&[("content-type", "text/xml"), ("ce-specversion", "1.0")], None),
            (&[("content-type", "application/x-www-form-urlencoded")], None),
        ] {
            assert_eq!(request_format(&headers(pairs)).ok(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn the_format_of_a_response_follows_from_accept() {
        for (pairs, expected) in [
            (&[][..], Some(ResponseFormat::Json)),
            (&[("accept", "text/html, */*;q=0.8")], Some(ResponseFormat::Json)),
            (&[("accept", "application/cloudevents-batch+json")], Some(ResponseFormat::CloudEvents)),
            (&[("accept", "application/cloudevents-batch+json, application/json")], Some(ResponseFormat::Json)),
            (&[("accept", "text/html")], None),
            (&[("accept", "application/json;q=0")], None),
        ] {
            assert_eq!(response_format(&headers(pairs)).ok(), expected, "{pairs:?}");
        }
    }
}
