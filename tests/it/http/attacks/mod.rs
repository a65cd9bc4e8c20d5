//! Attacks by unauthenticated clients on a broker with default settings. During each attack, a bystander publishes
//! (another one reads), and every request of the bystander succeeds.

mod connections;
mod http2;
mod memory;
mod schemas;

use super::{CREATED, Server, TOPIC, event};
use futures_util::StreamExt;
use reqwest::Client;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longer than any wait may take.
pub(crate) const IN_TIME: Duration = Duration::from_secs(60);
/// An address that no attack uses.
pub(crate) const OTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The addresses of the attackers. One alone gets at most half of everything.
pub(crate) const ATTACKERS: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 3), Ipv4Addr::new(127, 0, 0, 4)];
/// The most memory that the broker may use with default settings, in MB.
pub(crate) const RSS_MAX: usize = 400;

/// The most memory that the broker has used, in MB.
pub(crate) fn rss(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() / 1000
}

/// Lets this process open as many connections as the system permits.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}

/// A connection from this address.
pub(crate) async fn connect_from(server: &Server, address: Ipv4Addr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((address, 0))).unwrap();
    let target: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
    socket.connect(target).await.unwrap()
}

/// Connections from these addresses in turn that send this and read nothing.
pub(crate) async fn send_from(server: &Server, addresses: &[Ipv4Addr], count: usize, request: &[u8]) -> Vec<TcpStream> {
    raise_file_limit();
    // So many at a time fit into the queue of the listener.
    let sends = addresses.iter().cycle().take(count).map(|address| async {
        let mut stream = connect_from(server, *address).await;
        // A client that is refused during the write may find the connection closed; if the server does not read, the
        // time-out ends the write.
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.write_all(request)).await;
        stream
    });
    futures_util::stream::iter(sends).buffer_unordered(500).collect().await
}

/// A client at this address.
pub(crate) fn client_from(address: Ipv4Addr) -> Client {
    Client::builder().no_proxy().local_address(IpAddr::V4(address)).build().unwrap()
}

/// Sends one request after the other until it is stopped.
struct Asking {
    is_over: Arc<AtomicBool>,
    served: JoinHandle<usize>,
    progress: watch::Receiver<usize>,
}

impl Asking {
    fn begin<F: Future<Output = ()> + Send>(ask: impl Fn(usize) -> F + Send + Sync + 'static) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let (progressed, progress) = watch::channel(0);
        let served = tokio::spawn(async move {
            let mut count = 0;
            while !over.load(Ordering::Relaxed) {
                tokio::time::timeout(IN_TIME, ask(count)).await.expect("a bystander receives its response in time");
                count += 1;
                progressed.send_replace(count);
            }
            count
        });
        Self { is_over, served, progress }
    }

    async fn goes_on(&mut self, times: usize) {
        let wanted = *self.progress.borrow() + times;
        let _ = self.progress.wait_for(|count| *count >= wanted).await;
    }

    async fn end(self) -> usize {
        self.is_over.store(true, Ordering::Relaxed);
        let served = self.served.await.unwrap();
        assert!(served > 0, "the bystander was never served");
        served
    }
}

/// Publishes one event after the other until it is stopped.
pub(crate) struct BystanderPublisher(Asking);

impl BystanderPublisher {
    /// The type that it publishes must already be registered.
    pub(crate) fn begin(server: &Server) -> Self {
        Self::begin_with(server, client_from(OTHER))
    }

    /// The same with this client.
    pub(crate) fn begin_with(server: &Server, client: Client) -> Self {
        let url = format!("{}/v1/events", server.url);
        Self(Asking::begin(move |count| {
            let request = client.post(&url).json(&event(CREATED, "bystander"));
            async move {
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 201, "the bystander's event {count}: {:?}", answer.text().await);
            }
        }))
    }

    /// Waits until it has published this many more events; [`Bystander::end`] reports a failure.
    pub(crate) async fn goes_on(&mut self, events: usize) {
        self.0.goes_on(events).await;
    }

    /// Stops it; every request must have succeeded, and there must be at least one.
    pub(crate) async fn end(self) -> usize {
        self.0.end().await
    }
}

/// Publishes on a thread of its own beside a test that is not asynchronous; registers the type itself.
pub(crate) struct BystanderThread {
    stop: std::sync::mpsc::Sender<()>,
    thread: std::thread::JoinHandle<usize>,
}

impl BystanderThread {
    /// Returns when it has published its first event.
    pub(crate) fn begin(server: &Server) -> Self {
        let (stop, stopped) = std::sync::mpsc::channel();
        let (started, has_started) = std::sync::mpsc::channel();
        let (client, url) = (client_from(OTHER), server.url.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let new_type = client.post(format!("{url}/v1/event-types")).json(&serde_json::json!({"id": CREATED}));
                assert!(new_type.send().await.unwrap().status().is_success());
                let mut count = 0;
                while stopped.try_recv().is_err() {
                    let request = client.post(format!("{url}/v1/events")).json(&event(CREATED, "bystander"));
                    let answer = tokio::time::timeout(IN_TIME, request.send()).await;
                    let answer = answer.expect("a bystander receives its response in time").unwrap();
                    assert_eq!(answer.status(), 201, "the bystander's event {count}: {:?}", answer.text().await);
                    count += 1;
                    // The test may have ended.
                    let _ = started.send(());
                }
                count
            })
        });
        has_started.recv().expect("the bystander publishes an event");
        Self { stop, thread }
    }

    /// Stops it; every request must have succeeded.
    pub(crate) fn end(self) {
        self.stop.send(()).expect("the bystander still publishes");
        assert!(self.thread.join().unwrap() > 0);
    }
}

/// Reads the first events of the topic repeatedly, from another address, until it is stopped.
pub(crate) struct Reader(Asking);

impl Reader {
    /// The topic must have events.
    pub(crate) fn begin(server: &Server) -> Self {
        let (client, url) = (client_from(OTHER), format!("{}/v1/events?topic={TOPIC}&offset=0&limit=2", server.url));
        Self(Asking::begin(move |count| {
            let request = client.get(&url);
            async move {
                let answer = request.send().await.unwrap();
                assert_eq!(answer.status(), 200, "the reader's page {count}: {:?}", answer.text().await);
                assert!(answer.bytes().await.unwrap().len() > 100, "an empty page");
            }
        }))
    }

    /// Waits until it has read this many more pages; [`Reader::end`] reports a failure.
    pub(crate) async fn goes_on(&mut self, pages: usize) {
        self.0.goes_on(pages).await;
    }

    /// Stops it; every request must have succeeded, and there must be at least one.
    pub(crate) async fn end(self) -> usize {
        self.0.end().await
    }
}
