//! The bytes of a connection: plain, or encrypted.

use rustls::pki_types::CertificateDer;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// The bytes of a connection.
pub(crate) enum PeerStream {
    Plain(TcpStream),
    /// Boxed: the state of TLS is many times larger than a socket.
    Encrypted(Box<TlsStream<TcpStream>>),
}

/// Calls a method of the stream inside, whichever it is.
macro_rules! delegate {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            PeerStream::Plain(stream) => {
                let $inner = Pin::new(stream);
                $call
            }
            PeerStream::Encrypted(stream) => {
                let $inner = Pin::new(stream.as_mut());
                $call
            }
        }
    };
}

impl PeerStream {
    /// The socket.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Encrypted(stream) => stream.get_ref().0,
        }
    }

    /// Whether the bytes are encrypted.
    pub(crate) const fn is_encrypted(&self) -> bool {
        matches!(self, Self::Encrypted(_))
    }

    /// The certificate of the client, if it sent one. It was verified in the handshake.
    pub(crate) fn client_certificate(&self) -> Option<&CertificateDer<'static>> {
        match self {
            Self::Plain(_) => None,
            Self::Encrypted(stream) => stream.get_ref().1.peer_certificates()?.first(),
        }
    }
}

impl AsyncRead for PeerStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => stream.poll_read(context, buffer))
    }
}

impl AsyncWrite for PeerStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, stream => stream.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        delegate!(self, stream => stream.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        // Both are.
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => stream.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, stream => stream.poll_shutdown(context))
    }
}
