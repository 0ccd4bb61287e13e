//! What an attack costs the bystander by itself: its clients and the kernel use the same processor.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Bytes that are read of a connection before it is closed.
const READ: usize = 64 * 1024;
/// How long the rest of them is waited for.
const READ_TIMEOUT: Duration = Duration::from_millis(20);

/// A server that does the least that any can do against an attack before a login: it accepts connections, reads some bytes,
/// and closes.
pub(crate) struct Refusing {
    address: String,
    over: Arc<AtomicBool>,
}

impl Refusing {
    pub(crate) fn start() -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let over = Arc::<AtomicBool>::default();
        let is_over = over.clone();
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                if let Ok((client, _)) = listener.accept() {
                    refuse(client);
                }
            }
        });
        Refusing { address, over }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for Refusing {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        // Wakes the thread; an error means that it has ended.
        let _ = TcpStream::connect(&self.address);
    }
}

fn refuse(mut client: TcpStream) {
    let mut buffer = vec![0; READ];
    client.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    // An error is the timeout, or the attacker's own close.
    let _ = client.read_exact(&mut buffer);
}
