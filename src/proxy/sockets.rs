//! Listening sockets: opened here, or passed by systemd or by the process before this one.
//!
//! A passed socket keeps its queue of clients that nobody has accepted yet, which closing and opening another one
//! on the same port would reset. How sockets are passed between processes: [`super::hand_over`].

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpSocket};

/// Clients that may wait to be accepted; the kernel takes less where `net.core.somaxconn` says so.
const BACKLOG: u32 = 4096;

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; {}", self.hint())]
pub struct BindError {
    pub(super) address: SocketAddr,
    pub(super) error: io::Error,
    /// A socket of the same port that was passed, which has another address.
    pub(super) passed: Option<SocketAddr>,
}

impl BindError {
    fn hint(&self) -> String {
        match self.passed {
            Some(passed) => format!("a socket on {passed} was passed (LISTEN_FDS), and both must say the same address"),
            None => "choose another address with --listen or stop who holds it".to_owned(),
        }
    }
}

/// Sockets that listen already, until somebody has a use for them.
#[derive(Debug, Default)]
pub(super) struct Passed(Vec<(Option<String>, TcpListener)>);

/// The sockets this process listens on, by what they are for.
#[derive(Debug, Default)]
pub(super) struct Listening(Mutex<Vec<(String, Arc<TcpListener>)>>);

impl Passed {
    /// Adds one; `purpose` is a member's name, unless it is not known.
    ///
    /// # Errors
    /// The system's, when it is no socket that tokio can use.
    pub(super) fn add(&mut self, purpose: Option<String>, socket: std::net::TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        self.0.push((purpose, TcpListener::from_std(socket)?));
        Ok(())
    }

    /// The socket for this purpose, wherever it listens.
    pub(super) fn take_for(&mut self, purpose: &str) -> Option<TcpListener> {
        let named = |(name, _): &(Option<String>, _)| name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(purpose));
        let at = self.0.iter().position(named)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The socket that listens on `address`, else a new one.
    ///
    /// # Errors
    /// [`BindError`].
    pub(super) fn take_or_bind(&mut self, address: SocketAddr) -> Result<TcpListener, BindError> {
        let is_it = |(_, socket): &(_, TcpListener)| socket.local_addr().is_ok_and(|local| local == address);
        match self.0.iter().position(is_it) {
            Some(at) => Ok(self.0.swap_remove(at).1),
            None => bind(address).map_err(|error| {
                let passed = self.left().into_iter().find(|passed| passed.port() == address.port());
                BindError { address, error, passed }
            }),
        }
    }

    /// The addresses of those that nobody took.
    pub(super) fn left(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|(_, socket)| socket.local_addr().ok()).collect()
    }
}

impl Listening {
    pub(super) fn add(&self, purpose: &str, socket: Arc<TcpListener>) {
        self.lock().push((purpose.to_owned(), socket));
    }

    pub(super) fn remove(&self, socket: &Arc<TcpListener>) {
        self.lock().retain(|(_, other)| !Arc::ptr_eq(other, socket));
    }

    pub(super) fn all(&self) -> Vec<(String, Arc<TcpListener>)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Arc<TcpListener>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections that a process before this one closed do not keep the port for minutes.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
