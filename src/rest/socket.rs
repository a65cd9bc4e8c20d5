//! A connection's socket: what hyper reads from and writes to, with rules that hyper does not have.
//!
//! - Without TLS the first bytes distinguish HTTP/1 from HTTP/2, and are then read again by hyper. With TLS the handshake did.
//! - A peer that does not read what is written to it is disconnected after a while; over HTTP/1 not while it is still sending.
//! - Responses of hyper itself (to a head that is invalid or too large) are replaced by problem documents.

use super::head_meter::HeadMeter;
use super::http2_heads::Http2HeadMeter;
use super::peer_stream::PeerStream;
use super::problem::Problem;
use http::{Method, StatusCode};
use rustls::pki_types::CertificateDer;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};
use uuid::Uuid;

/// The version of HTTP that a peer uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpVersion {
    One,
    Two,
}

/// The first bytes of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The server's connection preface (SETTINGS), and GOAWAY with the code ENHANCE_YOUR_CALM.
const GO_AWAY: &[u8] = b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0b";

/// Most bytes that hyper gets with one read. It doubles its buffer whenever a read fills it, so this keeps the buffer of a
/// connection below 32 KiB unless a head is larger.
const READ_BYTES_MAX: usize = 32_767;

/// What is read of an encrypted connection while its poll is parked, in bytes.
const READ_AHEAD_MAX: usize = 1024;

/// A socket whose HTTP version is known.
pub(crate) struct HttpSocket {
    stream: PeerStream,
    /// Bytes that hyper reads before those of the stream.
    pushed_back: Vec<u8>,
    /// Runs while the peer reads nothing.
    stalled: Option<Pin<Box<Sleep>>>,
    stall_max: Duration,
    replacement: Option<ReplacedResponse>,
    version: HttpVersion,
    /// Set when everything is written.
    flushed: Arc<AtomicBool>,
    meter: Option<HeadCounter>,
}

/// Reserves room for heads that are being read.
pub(crate) enum HeadCounter {
    Http1(Arc<HeadMeter>),
    Http2(Box<Http2HeadMeter>),
}

impl HeadCounter {
    /// Counts bytes that were read. `Err`: there is no room for them.
    fn read(&mut self, bytes: &[u8]) -> io::Result<()> {
        let counted = match self {
            Self::Http1(meter) => meter.read(bytes.len()),
            Self::Http2(meter) => meter.read(bytes),
        };
        counted.map_err(|_| io::ErrorKind::OutOfMemory.into())
    }
}

/// A document that is written in place of a response of hyper's.
struct ReplacedResponse {
    document: Vec<u8>,
    written: usize,
    /// The length of hyper's response, reported to hyper when the document is written.
    replaced: usize,
}

impl HttpSocket {
    /// Waits for the first bytes and detects the version of HTTP.
    pub(crate) async fn detect_version(mut stream: TcpStream, stall_max: Duration) -> io::Result<Self> {
        let mut first = Vec::with_capacity(PREFACE.len());
        let mut piece = [0; PREFACE.len()];
        let version = loop {
            let reservation = piece.get_mut(..PREFACE.len() - first.len()).unwrap_or_default();
            let read = stream.read(reservation).await?;
            first.extend_from_slice(piece.get(..read).unwrap_or_default());
            if !PREFACE.starts_with(&first) || read == 0 {
                break HttpVersion::One;
            }
            if first.len() == PREFACE.len() {
                break HttpVersion::Two;
            }
        };
        let mut socket = Self::new(PeerStream::Plain(stream), version, stall_max);
        socket.pushed_back = first;
        Ok(socket)
    }

    /// A socket of which nothing was read yet.
    pub(crate) fn new(stream: PeerStream, version: HttpVersion, stall_max: Duration) -> Self {
        let flushed = Arc::default();
        Self {
            stream,
            pushed_back: Vec::new(),
            stalled: None,
            stall_max,
            replacement: None,
            version,
            flushed,
            meter: None,
        }
    }

    /// The verified certificate of the client, if it sent one.
    pub(crate) fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        self.stream.client_certificate()
    }

    /// The version of HTTP.
    pub(crate) const fn version(&self) -> HttpVersion {
        self.version
    }

    /// A flag that is set whenever everything is written.
    pub(crate) fn flushed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.flushed)
    }

    /// Counts heads with `meter`; reading fails if there is no room for them.
    pub(crate) fn count_heads(&mut self, mut meter: HeadCounter) {
        // With TLS the version is known before the preface is read, which is no frame.
        if let HeadCounter::Http2(meter) = &mut meter
            && self.pushed_back.is_empty()
        {
            meter.skip(PREFACE.len());
        }
        self.meter = Some(meter);
    }

    /// Lets hyper read these bytes next.
    pub(crate) fn push_back(&mut self, bytes: &[u8]) {
        self.pushed_back = [bytes, &self.pushed_back].concat();
    }

    /// Reads from the stream, and counts what was read.
    fn poll_stream(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let outcome = poll_read_bounded(Pin::new(&mut self.stream), context, buffer);
        let read = buffer.filled().get(filled..).unwrap_or_default();
        if !read.is_empty() {
            self.reset_stall_timer();
            if let Some(meter) = &mut self.meter {
                meter.read(read)?;
            }
        }
        outcome
    }

    /// Sends a refusal to a peer that is not served.
    pub(crate) async fn refuse(mut self, refusal: &Problem) {
        self.send_last(&encode_problem(refusal)).await;
    }

    /// Tells an HTTP/2 peer that it is not served, and that none of its requests was processed.
    pub(crate) async fn go_away(mut self) {
        self.send_last(GO_AWAY).await;
    }

    async fn send_last(&mut self, bytes: &[u8]) {
        let send = async {
            self.stream.write_all(bytes).await?;
            self.stream.flush().await
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), send).await;
    }

    /// Passes on the outcome of a write; fails if the peer has read nothing for too long.
    fn watch_stall<T>(&mut self, context: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stalled = None;
            return outcome;
        }
        let stall_max = self.stall_max;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall_max)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Restarts the time-out while the peer sends: it may read the response only after it has sent its body. Over HTTP/2 a peer
    /// must read while it sends.
    fn reset_stall_timer(&mut self) {
        if let Some(stalled) = self.stalled.as_mut().filter(|_| self.version == HttpVersion::One) {
            stalled.as_mut().reset(Instant::now() + self.stall_max);
        }
    }

    /// Whether an HTTP/1 peer has disconnected; if not, the task is woken when it does.
    ///
    /// Hyper flushes whenever it is idle, so this is called while a handler runs. Hyper itself would read ahead to find out, and
    /// allocate another buffer of 8 KiB for every request.
    pub(crate) fn has_lost_its_peer(&self, context: &mut Context<'_>) -> bool {
        if self.version == HttpVersion::Two {
            return false;
        }
        let stream = self.stream.tcp();
        match stream.poll_read_ready(context) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            // There are bytes to read, or the stream has ended.
            Poll::Ready(Ok(())) => {
                let state = std::pin::pin!(stream.ready(Interest::READABLE));
                let state = state.poll(&mut Context::from_waker(Waker::noop()));
                matches!(state, Poll::Ready(Ok(state)) if state.is_read_closed())
            }
        }
    }

    /// The same while hyper is away: what the peer sends is kept for hyper.
    ///
    /// A peer ends TLS with a message before it closes its socket. While that message is unread, the socket stays ready and the
    /// task would not be woken when the socket closes. So an encrypted stream is read, up to a bound.
    pub(crate) fn has_lost_its_peer_while_parked(&mut self, context: &mut Context<'_>) -> bool {
        while self.stream.is_encrypted() && self.pushed_back.len() < READ_AHEAD_MAX {
            let mut piece = [0; READ_AHEAD_MAX];
            let room = READ_AHEAD_MAX - self.pushed_back.len();
            let mut buffer = ReadBuf::new(piece.get_mut(..room).unwrap_or_default());
            match self.poll_stream(context, &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.pushed_back.extend_from_slice(buffer.filled());
                }
                Poll::Ready(_) => return true,
            }
        }
        self.has_lost_its_peer(context)
    }

    /// Writes the document that replaces hyper's response; returns the length of that response when it is done.
    fn poll_replacement(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        while let Some(ReplacedResponse { document, written, replaced }) = &mut self.replacement {
            let rest = document.get(*written..).unwrap_or_default();
            if rest.is_empty() {
                let done = *replaced;
                self.replacement = None;
                return Poll::Ready(Ok(done));
            }
            *written += ready!(Pin::new(&mut self.stream).poll_write(context, rest))?;
        }
        Poll::Ready(Ok(0))
    }
}

impl AsyncRead for HttpSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.pushed_back.is_empty() {
            return self.poll_stream(context, buffer);
        }
        let taken = self.pushed_back.len().min(buffer.remaining());
        let rest = self.pushed_back.split_off(taken);
        buffer.put_slice(&std::mem::replace(&mut self.pushed_back, rest));
        // More bytes of the same head are read at once: a head in two pieces would be parsed twice, in a buffer twice as large. An
        // error of the stream is dropped, because the next read returns it.
        if self.pushed_back.is_empty()
            && buffer.remaining() > 0
            && let Poll::Ready(Err(error)) = self.poll_stream(context, buffer)
            && error.kind() == io::ErrorKind::OutOfMemory
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HttpSocket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.replacement.is_none()
            && let Some(document) = replace_refusal(bytes)
        {
            self.replacement = Some(ReplacedResponse { document, written: 0, replaced: bytes.len() });
        }
        let outcome = match self.replacement {
            Some(_) => self.poll_replacement(context),
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        };
        self.watch_stall(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // A response of hyper itself has no body, so it is a single piece.
        if let [only] = pieces {
            return self.poll_write(context, only);
        }
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch_stall(context, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(context);
        if outcome.is_ready() && self.has_lost_its_peer(context) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        self.flushed.store(outcome.is_ready(), Ordering::Relaxed);
        self.watch_stall(context, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(context);
        self.watch_stall(context, outcome)
    }
}

/// Reads at most [`READ_BYTES_MAX`] bytes.
fn poll_read_bounded(
    stream: Pin<&mut PeerStream>,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buffer.remaining() <= READ_BYTES_MAX {
        return stream.poll_read(context, buffer);
    }
    let mut part = ReadBuf::new(buffer.initialize_unfilled_to(READ_BYTES_MAX));
    ready!(stream.poll_read(context, &mut part))?;
    let read = part.filled().len();
    buffer.advance(read);
    Poll::Ready(Ok(()))
}

/// A response with a problem document, if `bytes` is a refusal by hyper: those have no trace id.
fn replace_refusal(bytes: &[u8]) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 4").or_else(|| bytes.strip_prefix(b"HTTP/1.0 4"))?;
    let status = std::str::from_utf8(status.get(..2)?).ok()?.parse::<u16>().ok()?;
    let head = std::str::from_utf8(bytes).ok()?;
    if head.contains("\r\nx-trace-id:") || !head.ends_with("\r\n\r\n") {
        return None;
    }
    let problem = Problem::from_status(StatusCode::from_u16(400 + status).ok()?, &Method::GET);
    Some(encode_problem(&problem))
}

/// A complete response for a peer whose request is not read.
pub(crate) fn encode_problem(problem: &Problem) -> Vec<u8> {
    let trace = Uuid::new_v4().simple().to_string();
    let document = serde_json::to_string(&problem.document(None, Some(&trace))).unwrap_or_default();
    let retry = problem.retry_after_seconds().map(|seconds| format!("retry-after: {seconds}\r\n")).unwrap_or_default();
    let status = problem.status();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\nx-trace-id: {trace}\r\n{retry}\
        content-length: {}\r\nconnection: close\r\n\r\n{document}",
        document.len(),
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::ByteBudget;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn the_first_bytes_are_read_together_with_those_after_them() {
        let head = b"GET /v1/topics HTTP/1.1\r\nHost: here\r\nAccept: application/json\r\n\r\n";
        assert!(head.len() > PREFACE.len());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        peer.write_all(head).await.unwrap();
        let mut socket = HttpSocket::detect_version(stream, Duration::from_secs(60)).await.unwrap();
        let mut buffer = [0; 8192];
        let read = socket.read(&mut buffer).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&buffer[..read]), String::from_utf8_lossy(head));
        // The end of the stream is still seen.
        drop(peer);
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_head_over_http2_is_counted_whether_the_preface_was_read_before_or_not() {
        // The first frame of a head whose end does not come: nine bytes, of which none is payload.
        let sent = [PREFACE, b"\0\0\0\x01\0\0\0\0\x01"].concat();
        for is_read_before in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, _) = listener.accept().await.unwrap();
            peer.write_all(&sent).await.unwrap();
            let mut socket = match is_read_before {
                true => HttpSocket::detect_version(stream, Duration::from_secs(60)).await.unwrap(),
                // With TLS the handshake tells the version.
                false => HttpSocket::new(PeerStream::Plain(stream), HttpVersion::Two, Duration::from_secs(60)),
            };
            let budget = ByteBudget::new(Http2HeadMeter::unfinished_bytes(1000), "full");
            let meter = Http2HeadMeter::new(&budget, &Arc::default(), 1000);
            socket.count_heads(HeadCounter::Http2(Box::new(meter)));
            socket.read_exact(&mut vec![0; sent.len()]).await.unwrap();
            assert_eq!(budget.free(), 0, "read before: {is_read_before}");
        }
    }
}
