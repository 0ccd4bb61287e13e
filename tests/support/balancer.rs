//! A TCP load balancer.

use std::io::copy;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};

/// Forwards connections to the backends in turn, and to the next backend if one does not listen.
pub fn balance(listener: TcpListener, backends: Vec<SocketAddr>) {
    std::thread::spawn(move || {
        for (first, client) in listener.incoming().flatten().enumerate() {
            let candidates = (0..backends.len()).map(|next| backends[(first + next) % backends.len()]);
            let Some(backend) = candidates.filter_map(|backend| TcpStream::connect(backend).ok()).next() else {
                continue;
            };
            let _ = (client.set_nodelay(true), backend.set_nodelay(true));
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
