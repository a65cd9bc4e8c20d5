//! Receivers: one with scripted HTTP responses that stores its requests, and one with a raw socket.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// A received request.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl ReceivedRequest {
    /// The value of a header; empty if there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(super) type Responder = Box<dyn Fn(&ReceivedRequest) -> Response<ResponderBody> + Send + Sync>;

/// The body of a response.
pub(super) enum ResponderBody {
    Text(Full<Bytes>),
    /// This many more bytes, and how many of them were read.
    Endless {
        left: u64,
        given: Arc<AtomicU64>,
    },
}

/// A receiver over HTTP/1.1 and, when it speaks TLS, HTTP/2.
pub(super) struct HttpReceiver {
    pub(super) address: SocketAddr,
    pub(super) connections: Arc<AtomicUsize>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    accepting: JoinHandle<()>,
}

impl HttpReceiver {
    /// Responds to every request like this.
    pub(super) async fn answering(status: u16, body: &str) -> Self {
        let body = Bytes::from(body.to_owned());
        Self::start(Box::new(move |_| answer(status, &[], body.clone())), None).await
    }

    pub(super) async fn start(answering: Responder, encryption: Option<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, seen) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let encryption = encryption.map(|config| TlsAcceptor::from(Arc::new(config)));
        let shared = (Arc::clone(&connections), Arc::clone(&seen), Arc::new(answering));
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (connections, seen, answering) = shared.clone();
                connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(socket, encryption.clone(), seen, answering));
            }
        });
        Self { address, connections, seen, accepting }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for HttpReceiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(
    socket: TcpStream,
    encryption: Option<TlsAcceptor>,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    answering: Arc<Responder>,
) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (seen, answering) = (Arc::clone(&seen), Arc::clone(&answering));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            let path = parts.uri.path_and_query().map_or(String::new(), ToString::to_string);
            let request =
                ReceivedRequest { method: parts.method, path, version: parts.version, headers: parts.headers, body };
            let response = answering(&request);
            seen.lock().unwrap().push(request);
            Ok::<_, hyper::Error>(response)
        }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    // How a connection ends is what the tests look at from the other side.
    let _ = match encryption {
        None => builder.serve_connection(TokioIo::new(socket), service).await,
        Some(acceptor) => match acceptor.accept(socket).await {
            Ok(stream) => builder.serve_connection(TokioIo::new(stream), service).await,
            Err(_) => Ok(()),
        },
    };
}

/// A response with a text body.
pub(super) fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Response<ResponderBody> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(ResponderBody::Text(Full::new(body.into()))).unwrap()
}

impl Body for ResponderBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Text(text) => Pin::new(text).poll_frame(context),
            Self::Endless { left: 0, .. } => Poll::Ready(None),
            Self::Endless { left, given } => {
                let piece = Bytes::from_static(&[b'x'; 16 * 1024]);
                *left = left.saturating_sub(piece.len() as u64);
                given.fetch_add(piece.len() as u64, Ordering::Relaxed);
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Text(text) => text.size_hint(),
            Self::Endless { .. } => SizeHint::default(),
        }
    }
}

/// A receiver that handles raw connections; returns its URL.
pub(super) async fn raw<F: Future<Output = ()> + Send + 'static>(
    behaviour: impl Fn(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(behaviour(socket));
        }
    });
    url
}
