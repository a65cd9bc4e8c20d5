//! A scripted broker: it sends the next response of a list to each request, and records the requests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The response to a request; `None`: the connection is closed without a response.
pub(crate) type Reply = Option<(u16, &'static str, String)>;

pub(crate) struct ScriptedBroker {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// A request's first line with its body, and its `Idempotency-Key`.
type Asked = (String, Option<String>);

impl ScriptedBroker {
    pub(crate) fn with(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || replies.into_iter().for_each(|reply| answer(&listener, &notes, reply)));
        Self { url, asked }
    }

    /// The requests so far.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().iter().map(|(asked, _)| asked.clone()).collect()
    }

    /// The idempotency keys of the requests so far.
    pub(crate) fn keys(&self) -> Vec<Option<String>> {
        self.asked.lock().unwrap().iter().map(|(_, key)| key.clone()).collect()
    }
}

fn answer(listener: &TcpListener, notes: &Mutex<Vec<Asked>>, reply: Reply) {
    let (mut stream, _) = listener.accept().unwrap();
    let request = request(&mut stream);
    notes.lock().unwrap().push(request);
    if let Some((status, headers, body)) = reply {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} x\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    }
}

fn request(stream: &mut TcpStream) -> Asked {
    let mut reader = BufReader::new(stream);
    let (mut first, mut length, mut key, mut is_chunked) = (String::new(), 0, None, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let Some(value) = line.to_lowercase().strip_prefix("idempotency-key:") {
            key = Some(value.trim().to_owned());
        }
        is_chunked |= line.to_lowercase().starts_with("transfer-encoding: chunked");
        if line.trim().is_empty() {
            break;
        }
        if first.is_empty() {
            first = line.trim().trim_end_matches(" HTTP/1.1").to_owned();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    while is_chunked {
        let mut head = String::new();
        reader.read_line(&mut head).unwrap();
        let mut chunk = vec![0; usize::from_str_radix(head.trim(), 16).unwrap() + 2];
        reader.read_exact(&mut chunk).unwrap();
        chunk.truncate(chunk.len() - 2);
        is_chunked = !chunk.is_empty();
        body.extend(chunk);
    }
    (format!("{first} {}", String::from_utf8(body).unwrap()).trim().to_owned(), key)
}
