//! A proxy between a client and its broker that loses responses: a request has its effect, its response never arrives.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

pub(crate) struct LossyProxy {
    pub(crate) url: String,
    kept_back: Arc<Mutex<HashSet<String>>>,
}

impl LossyProxy {
    /// Drops the first response to each request whose first line contains this text.
    pub(crate) async fn before(broker: &str, wanted: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let broker = broker.trim_start_matches("http://").to_owned();
        let kept_back = Arc::<Mutex<HashSet<String>>>::default();
        let notes = Arc::clone(&kept_back);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (broker, notes) = (broker.clone(), Arc::clone(&notes));
                tokio::spawn(async move { between(client, &broker, wanted, &notes).await });
            }
        });
        Self { url, kept_back }
    }

    /// How many responses were dropped so far.
    pub(crate) fn kept_back(&self) -> usize {
        self.kept_back.lock().unwrap().len()
    }
}

/// Forwards requests and responses until one side closes, or a response is dropped.
async fn between(client: TcpStream, broker: &str, wanted: &str, notes: &Mutex<HashSet<String>>) -> Option<()> {
    let broker = TcpStream::connect(broker).await.ok()?;
    let (mut client, mut broker) = (BufReader::new(client), BufReader::new(broker));
    loop {
        let (request, first) = message(&mut client).await?;
        broker.write_all(&request).await.ok()?;
        let (answer, _) = message(&mut broker).await?;
        if first.contains(wanted) && notes.lock().unwrap().insert(first) {
            return None;
        }
        client.write_all(&answer).await.ok()?;
    }
}

/// A whole message, and its first line.
async fn message(stream: &mut BufReader<TcpStream>) -> Option<(Vec<u8>, String)> {
    let (mut bytes, mut first, mut length) = (Vec::new(), String::new(), 0);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        bytes.extend_from_slice(line.as_bytes());
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.trim().is_empty() {
            break;
        }
        if first.is_empty() {
            first = line.trim().to_owned();
        }
    }
    let head = bytes.len();
    bytes.resize(head + length, 0);
    stream.read_exact(&mut bytes[head..]).await.ok()?;
    Some((bytes, first))
}
