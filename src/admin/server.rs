//! The admin address's socket, thread and limits. What is answered is in [`super::routes`].

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::{oneshot, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, sleep_until};

use super::places::{Place, Places, Stage};
use super::settings::Settings;
use super::stalled::Impatient;
use super::{AdminContext, Sources, routes};
use crate::patterns::RuleSet;
use crate::proxy::{Observer, Phase};

/// For the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// For a request and its answer: a client that reads more slowly is cut off.
const LIFETIME: Duration = Duration::from_secs(30);
/// The same where decisions are followed; consoles come back.
const STREAM_LIFETIME: Duration = Duration::from_secs(600);
/// Bytes of a request's head.
const HEAD_LENGTH: usize = 16 * 1024;
const HEADERS: usize = 64;
/// Bytes that the system keeps for a connection whose other side does not read.
const SEND_BUFFER: usize = 32 * 1024;
/// Pause before what failed is tried again: accepting, or listening where a process still does that hands over.
const AGAIN: Duration = Duration::from_millis(100);
/// For answers that take long to make: one that explains, one for all others.
const BLOCKING_THREADS: usize = 2;

/// The admin address, taken.
#[derive(Debug)]
pub struct Listener {
    settings: Settings,
    /// `None`: the process that hands over still listens there.
    socket: Option<std::net::TcpListener>,
}

/// Serves until it is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    _running: oneshot::Sender<()>,
}

impl Listener {
    /// `patient`: another process may still listen there for a while.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub fn bind(settings: Settings, patient: bool) -> io::Result<Self> {
        let socket = match std::net::TcpListener::bind(settings.address) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                Some(socket)
            }
            Err(error) if patient && error.kind() == ErrorKind::AddrInUse => None,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{}: {error}", settings.address))),
        };
        Ok(Self { settings, socket })
    }
}

impl Admin {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when there can be no more threads.
    pub fn start(
        listener: Listener,
        observer: Arc<Observer<RuleSet>>,
        admin_context: Arc<dyn AdminContext>,
    ) -> io::Result<Self> {
        let Listener { settings, socket } = listener;
        let address = socket.as_ref().map_or(Ok(settings.address), std::net::TcpListener::local_addr)?;
        let (running, dropped) = oneshot::channel();
        let phase = observer.phase();
        let router = routes::router(Sources::new(settings, observer, admin_context));
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
        std::thread::Builder::new().name("admin".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(address, socket, router) => {}
                    () = handed_over(phase) => {}
                    _ = dropped => {}
                }
            });
        })?;
        Ok(Self { address, _running: running })
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Whoever has taken over the listeners also takes this address.
async fn handed_over(mut phase: watch::Receiver<Phase>) {
    if phase.wait_for(|phase| *phase == Phase::HandedOver).await.is_err() {
        std::future::pending().await
    }
}

async fn serve(address: SocketAddr, socket: Option<std::net::TcpListener>, router: Router) {
    let listener = listen(address, socket).await;
    let places = Places::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let place = Arc::new(places.take(peer.ip()));
                tokio::spawn(converse(stream, place, router.clone()));
                // A request that is here already is answered before others take its place.
                yield_now().await;
            }
            Err(error) => {
                tracing::warn!("admin: cannot accept a connection: {error}");
                sleep(AGAIN).await;
            }
        }
    }
}

async fn listen(address: SocketAddr, socket: Option<std::net::TcpListener>) -> TcpListener {
    if let Some(Ok(listener)) = socket.map(TcpListener::from_std) {
        return listener;
    }
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return listener,
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Answers one request.
async fn converse(stream: TcpStream, place: Arc<Place>, router: Router) {
    // Best effort: without it a side that does not read is noticed later.
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    let router = TowerToHyperService::new(router);
    let holder = place.clone();
    let answer = service_fn(move |mut request: Request<Incoming>| {
        holder.enter(Stage::Answer);
        request.extensions_mut().insert(holder.clone());
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_LENGTH)
        .serve_connection(TokioIo::new(Impatient::new(stream)), answer);
    tokio::select! {
        served = served => {
            if let Err(error) = served {
                tracing::debug!("admin: connection ended: {error}");
            }
        }
        () = place.lost() => tracing::debug!("admin: connection closed for a newer one"),
        () = too_long(&place) => tracing::debug!("admin: connection closed, its request took too long"),
    }
}

/// Waits until a connection has lasted as long as one may.
async fn too_long(place: &Place) {
    let began = Instant::now();
    sleep_until(began + LIFETIME).await;
    if place.is_stream() {
        sleep_until(began + STREAM_LIFETIME).await;
    }
}
