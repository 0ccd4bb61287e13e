//! A TCP load balancer.

use std::io::{Write, copy};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// Forwards connections to the backends in turn, and to the next backend if one does not listen.
pub fn balance(listener: TcpListener, backends: Vec<SocketAddr>) {
    balance_with(listener, backends, b"");
}

/// The same, and sends a backend these bytes before those of the client.
pub fn balance_with(listener: TcpListener, backends: Vec<SocketAddr>, header: &'static [u8]) {
    std::thread::spawn(move || {
        for (first, client) in listener.incoming().flatten().enumerate() {
            let candidates = (0..backends.len()).map(|next| backends[(first + next) % backends.len()]);
            let Some(mut backend) = candidates.filter_map(|backend| TcpStream::connect(backend).ok()).next() else {
                continue;
            };
            let _ = (client.set_nodelay(true), backend.set_nodelay(true), backend.write_all(header));
            for (from, to) in [(&client, &backend), (&backend, &client)] {
                let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = copy(&mut from, &mut to);
                    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                });
            }
        }
    });
}
