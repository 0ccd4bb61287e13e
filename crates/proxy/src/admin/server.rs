//! The socket, thread and limits of the admin address. [`super::routes`] handles the requests.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
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

use super::settings::Settings;
use super::slots::{ConnectionSlot, ConnectionStage, LIFETIME, Slots};
use super::write_timeout::WithWriteTimeout;
use super::{AdminContext, ResponseData, routes};
use crate::proxy::{Observer, ProcessPhase};

/// The timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest stream of decisions; consoles reconnect.
const STREAM_LIFETIME: Duration = Duration::from_secs(600);
/// The longest request head, in bytes.
const HEAD_LENGTH: usize = 16 * 1024;
const HEADERS: usize = 64;
/// The kernel's send buffer for a connection, in bytes. It has room for two segments of the loopback interface: with one
/// in flight, each waits for the receiver's delayed acknowledgement, and a long reply takes 40 ms for each 64 KiB.
const SEND_BUFFER: usize = 128 * 1024;
/// The pause before a retry of a failed accept, or of a bind while the previous process still listens.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Threads for slow responses: one for explain, one for all others.
const BLOCKING_THREADS: usize = 2;

/// The bound admin address.
#[derive(Debug)]
pub struct Listener {
    settings: Arc<ArcSwap<Settings>>,
    /// `None` while the previous process of a hand-over still listens.
    socket: Option<std::net::TcpListener>,
}

/// The running admin server; it stops when this is dropped.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    _running: oneshot::Sender<()>,
}

impl Listener {
    /// Binds the address. The token in `settings` may change later. With `retry`, an address in use is not an error: it is bound again later, after a hand-over.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn bind(settings: Arc<ArcSwap<Settings>>, retry: bool) -> io::Result<Self> {
        let address = settings.load().address;
        let socket = match std::net::TcpListener::bind(address) {
            Ok(socket) => {
                socket.set_nonblocking(true)?;
                Some(socket)
            }
            Err(error) if retry && error.kind() == ErrorKind::AddrInUse => None,
            Err(error) => return Err(io::Error::new(error.kind(), format!("{address}: {error}"))),
        };
        Ok(Self { settings, socket })
    }
}

impl Admin {
    /// Starts the thread.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        listener: Listener,
        observer: Arc<Observer>,
        admin_context: Arc<dyn AdminContext>,
    ) -> io::Result<Self> {
        let Listener { settings, socket } = listener;
        let address = socket.as_ref().map_or_else(|| Ok(settings.load().address), std::net::TcpListener::local_addr)?;
        let (running, dropped) = oneshot::channel();
        let phase = observer.phase();
        let router = routes::router(ResponseData::new(settings, observer, admin_context));
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

/// Waits until another process has taken over the listeners; it then binds this address too.
async fn handed_over(mut phase: watch::Receiver<ProcessPhase>) {
    if phase.wait_for(|phase| *phase == ProcessPhase::HandedOver).await.is_err() {
        std::future::pending().await
    }
}

async fn serve(address: SocketAddr, socket: Option<std::net::TcpListener>, router: Router) {
    let listener = listen(address, socket).await;
    let slots = Slots::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let slot = Arc::new(slots.take(peer.ip()));
                tokio::spawn(serve_connection(stream, slot, router.clone()));
                // Lets the task read a request that has already arrived, before another connection takes its slot.
                yield_now().await;
            }
            Err(error) => {
                tracing::warn!(
                    listener = %address,
                    "admin: cannot accept connections; clients wait: {error} (if too many files are open, raise the \
                     limit: ulimit -n, LimitNOFILE=)"
                );
                sleep(RETRY_PAUSE).await;
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
            Err(_) => sleep(RETRY_PAUSE).await,
        }
    }
}

/// Serves one request.
async fn serve_connection(stream: TcpStream, slot: Arc<ConnectionSlot>, router: Router) {
    // Best effort: without it, a client that does not read is detected later.
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    let _ = stream.set_nodelay(true);
    let router = TowerToHyperService::new(router);
    let holder = slot.clone();
    let respond = service_fn(move |mut request: Request<Incoming>| {
        holder.enter(ConnectionStage::Response);
        request.extensions_mut().insert(holder.clone());
        router.call(request)
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_headers(HEADERS)
        .max_buf_size(HEAD_LENGTH)
        .serve_connection(TokioIo::new(WithWriteTimeout::new(stream)), respond);
    tokio::select! {
        served = served => {
            if let Err(error) = served {
                tracing::debug!("admin: connection ended: {error}");
            }
        }
        () = slot.lost() => tracing::debug!("admin: connection closed for a newer one"),
        () = too_long(&slot) => tracing::debug!("admin: connection closed, its request took too long"),
    }
}

/// Waits until a connection has reached its longest lifetime.
async fn too_long(slot: &ConnectionSlot) {
    let began = Instant::now();
    sleep_until(began + LIFETIME).await;
    match slot.stage() {
        Some(ConnectionStage::Capture) => std::future::pending().await,
        Some(ConnectionStage::Stream) => sleep_until(began + STREAM_LIFETIME).await,
        Some(ConnectionStage::Head | ConnectionStage::Response) | None => {}
    }
}
