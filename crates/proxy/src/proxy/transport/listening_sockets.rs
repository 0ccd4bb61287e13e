//! Listening sockets: bound here, or passed by systemd or by the previous process.
//!
//! A passed socket keeps its queue of clients that are not accepted yet. Binding a new socket to the same port would
//! reset them. [`crate::proxy::shutdown::hand_over`] passes sockets between processes.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::{TcpListener, TcpSocket};

/// Clients that may wait to be accepted; the kernel caps it at `net.core.somaxconn`.
pub(in crate::proxy) const BACKLOG: u32 = 4096;

/// A listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {error}; {}", self.hint())]
pub struct BindError {
    pub(in crate::proxy) address: SocketAddr,
    pub(in crate::proxy) error: io::Error,
    /// A passed socket with the same port but another address.
    pub(in crate::proxy) passed: Option<SocketAddr>,
}

impl BindError {
    fn hint(&self) -> String {
        match self.passed {
            Some(passed) => format!("LISTEN_FDS passed a socket on {passed}; configure the same address for both"),
            None => {
                "choose another address, or stop the process that uses this one; without `members`, a replica set also uses \
                     the ports after --listen"
                    .to_owned()
            }
        }
    }
}

/// Passed sockets that are not yet assigned to a listener.
#[derive(Debug, Default)]
pub(in crate::proxy) struct PassedSockets(Vec<(Option<String>, TcpListener)>);

/// The listening sockets of this process, by purpose.
#[derive(Debug, Default)]
pub(in crate::proxy) struct ListeningSockets(Mutex<Vec<(String, Arc<TcpListener>)>>);

impl PassedSockets {
    /// Adds a socket; `purpose` is a member's name, or `None` if it is unknown.
    ///
    /// # Errors
    /// The operating system's, if tokio cannot register the socket.
    pub(in crate::proxy) fn add(&mut self, purpose: Option<String>, socket: std::net::TcpListener) -> io::Result<()> {
        socket.set_nonblocking(true)?;
        self.0.push((purpose, TcpListener::from_std(socket)?));
        Ok(())
    }

    /// Takes the socket for this purpose, whatever its address.
    pub(in crate::proxy) fn take_for(&mut self, purpose: &str) -> Option<TcpListener> {
        let named = |(name, _): &(Option<String>, _)| name.as_deref().is_some_and(|n| n.eq_ignore_ascii_case(purpose));
        let at = self.0.iter().position(named)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Takes the socket that listens on `address`, or binds a new one.
    ///
    /// # Errors
    /// [`BindError`]: the address cannot be bound.
    pub(in crate::proxy) fn take_or_bind(&mut self, address: SocketAddr) -> Result<TcpListener, BindError> {
        let is_it = |(_, socket): &(_, TcpListener)| socket.local_addr().is_ok_and(|local| local == address);
        match self.0.iter().position(is_it) {
            Some(at) => Ok(self.0.swap_remove(at).1),
            None => bind(address).map_err(|error| {
                let passed = self.unassigned().into_iter().find(|passed| passed.port() == address.port());
                BindError { address, error, passed }
            }),
        }
    }

    /// The addresses of the sockets that are not assigned.
    pub(in crate::proxy) fn unassigned(&self) -> Vec<SocketAddr> {
        self.0.iter().filter_map(|(_, socket)| socket.local_addr().ok()).collect()
    }
}

impl ListeningSockets {
    pub(in crate::proxy) fn add(&self, purpose: &str, socket: Arc<TcpListener>) {
        self.lock().push((purpose.to_owned(), socket));
    }

    pub(in crate::proxy) fn remove(&self, socket: &Arc<TcpListener>) {
        self.lock().retain(|(_, other)| !Arc::ptr_eq(other, socket));
    }

    pub(in crate::proxy) fn clear(&self) {
        self.lock().clear();
    }

    pub(in crate::proxy) fn all(&self) -> Vec<(String, Arc<TcpListener>)> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Arc<TcpListener>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Closed connections of a previous process must not block the port for minutes.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
