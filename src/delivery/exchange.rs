//! One request and its answer, within a deadline and within bytes.
//!
//! - The deadline covers everything: connecting, sending, waiting, and every byte of the answer. A receiver that drips
//!   gets no further than one that hangs.
//! - Of a body only so much is read; then the connection is closed (HTTP/1.1) or the stream reset (HTTP/2), and what the
//!   receiver still sends goes nowhere.

use super::answer::Answer;
use super::failure::{ErrorClass, Failure};
use super::pool::Client;
use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use tokio::time::{Instant, timeout_at};

/// An exchange that came to no answer, or to half of one.
#[derive(Debug)]
pub(super) struct Broken {
    pub(super) failure: Failure,
    /// The status, if it came to that.
    pub(super) status: Option<StatusCode>,
    /// As much of the body as had come.
    pub(super) body: Bytes,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self { failure, status: None, body: Bytes::new() }
    }
}

/// Sends a request and reads up to `bytes_max` of the answer.
pub(super) async fn exchange(
    client: &Client,
    request: Request<Full<Bytes>>,
    deadline: Instant,
    bytes_max: usize,
) -> Result<Answer, Broken> {
    let response = timeout_at(deadline, client.request(request)).await;
    let response = response.map_err(|_| late("No answer in time."))?.map_err(|error| Failure::of(&error))?;
    let (parts, mut incoming) = response.into_parts();
    let mut body = BytesMut::new();
    match timeout_at(deadline, read(&mut incoming, &mut body, bytes_max)).await {
        Ok(Ok(is_cut)) => Ok(Answer { status: parts.status, headers: parts.headers, body: body.freeze(), is_cut }),
        Ok(Err(failure)) => Err(Broken { failure, status: Some(parts.status), body: body.freeze() }),
        Err(_) => {
            let failure = late("The answer did not end in time.");
            Err(Broken { failure, status: Some(parts.status), body: body.freeze() })
        }
    }
}

/// Time ran out.
pub(super) fn late(message: &str) -> Failure {
    Failure::new(ErrorClass::Timeout, message)
}

/// Appends up to `bytes_max`, and says whether there was more.
async fn read(incoming: &mut Incoming, body: &mut BytesMut, bytes_max: usize) -> Result<bool, Failure> {
    while let Some(frame) = incoming.frame().await {
        // Trailers are nobody's business.
        let Ok(piece) = frame.map_err(|error| Failure::of(&error))?.into_data() else { continue };
        let room = bytes_max - body.len();
        body.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        if piece.len() > room {
            return Ok(true);
        }
    }
    Ok(false)
}
