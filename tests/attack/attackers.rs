//! The attackers. Each function runs once with the address, is called again until the attack is over, and checks
//! regularly whether it is.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use bson::{Document, doc};

use super::MEGABYTE;
use support::frame::{Message, OP_MSG, OP_QUERY, header};
use support::raw::Client;

const ZLIB: u8 = 2;
const SOON: Duration = Duration::from_secs(2);

/// A connection that sends as much as the peer accepts.
struct Pusher {
    stream: TcpStream,
    bytes: Vec<u8>,
    sent: usize,
}

impl Pusher {
    fn new(address: &str, bytes: Vec<u8>) -> Option<Pusher> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Pusher { stream, bytes, sent: 0 })
    }

    /// Returns false if the connection is closed.
    fn push(&mut self) -> bool {
        match self.stream.write(&self.bytes[self.sent..]) {
            Ok(sent) => self.sent += sent,
            // Pauses, because an attacker that uses up the CPU would hide docward's own cost.
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_millis(1)),
            Err(_) => return false,
        }
        match self.stream.read(&mut [0; 4096]) {
            Ok(0) => false,
            Ok(_) => true,
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        }
    }

    fn is_sent(&self) -> bool {
        self.sent == self.bytes.len()
    }
}

fn is_over(over: &AtomicBool) -> bool {
    over.load(Ordering::Relaxed)
}

/// The start of an OP_MSG that claims 45 MB, up to the body's first fields.
fn beginning(first_fields: &[u8]) -> Vec<u8> {
    let mut bytes = header(45_000_000, OP_MSG);
    bytes.extend([0; 4]);
    bytes.push(0);
    bytes.extend(44_999_979_i32.to_le_bytes());
    bytes.extend(first_fields);
    bytes
}

fn string(key: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![2];
    bytes.extend(key.as_bytes());
    bytes.push(0);
    bytes.extend((value.len() as i32 + 1).to_le_bytes());
    bytes.extend(value.as_bytes());
    bytes.push(0);
    bytes
}

/// Eight connections, each with 44 of the 45 MB of an insert into a protected collection, and then silence.
pub(crate) fn half_inserts(address: &str, over: &AtomicBool) {
    let mut bytes = beginning(&string("insert", "orders"));
    bytes.extend(vec![b'x'; 44_000_000]);
    let mut all: Vec<Pusher> = (0..8).filter_map(|_| Pusher::new(address, bytes.clone())).collect();
    while !is_over(over) && !all.is_empty() {
        all.retain_mut(Pusher::push);
        if all.iter().all(Pusher::is_sent) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Sends 10 MB that do not identify the message, then 30 bytes at a time: a login of tiny fields, an endless key, an
/// endless collection name.
pub(crate) fn dribbles(address: &str, over: &AtomicBool) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let bytes = match NEXT.fetch_add(1, Ordering::Relaxed) % 3 {
        0 => {
            let tiny = [8, b'a', 0, 1].repeat(10 * MEGABYTE / 4);
            beginning(&[[&[16][..], b"saslStart\0", &[1, 0, 0, 0]].concat(), tiny].concat())
        }
        1 => beginning(&[vec![2], vec![b'k'; 10 * MEGABYTE]].concat()),
        _ => [header(45_000_000, OP_QUERY), vec![0; 4], vec![b'c'; 10 * MEGABYTE]].concat(),
    };
    let Some(mut pusher) = Pusher::new(address, bytes) else { return };
    while !is_over(over) && !pusher.is_sent() {
        if !pusher.push() {
            return;
        }
    }
    while !is_over(over) && pusher.push() {
        pusher.bytes = vec![b'a'; 30];
        pusher.sent = 0;
        thread::sleep(Duration::from_millis(20));
    }
}

/// A connection with an application name of one megabyte whose writes are rejected, or would be by a rule in shadow
/// mode.
pub(crate) fn long_names(address: &str, over: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(address) else { return };
    let name = "n".repeat(MEGABYTE);
    let metadata = doc! { "application": { "name": name }, "driver": { "name": "x", "version": "1" } };
    let hello = doc! { "hello": 1, "client": metadata };
    if client.try_command("admin", hello, SOON).is_none() {
        return;
    }
    for _ in 0..200 {
        if is_over(over) {
            return;
        }
        let replace = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] };
        let tried = doc! { "update": "tried", "updates": [{ "q": { "_id": 1 }, "u": { "n1": -1 } }] };
        for command in [replace, tried] {
            if client.try_command("d", command, SOON).is_none() {
                return;
            }
        }
    }
}

/// 100,000 replacements that a rule rejects, in a message of about ten kilobytes.
pub(crate) fn packed_rejections(address: &str, over: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(address) else { return };
    if client.try_command("admin", doc! { "hello": 1, "compression": ["zlib"] }, SOON).is_none() {
        return;
    }
    static FRAME: OnceLock<Vec<u8>> = OnceLock::new();
    let frame = FRAME.get_or_init(|| {
        let statements = vec![doc! { "q": {}, "u": {} }; 100_000];
        let body = doc! { "update": "orders", "ordered": false, "$db": "d" };
        Message::new(body).sequence("updates", statements).to_frame(7, 0).compressed(ZLIB).to_bytes()
    });
    while !is_over(over) {
        if client.try_send_bytes(frame).is_err() || client.receive_within(Duration::from_secs(10)).is_err() {
            return;
        }
    }
}

/// Requests 15 MB repeatedly and never reads the replies.
pub(crate) fn unread_replies(address: &str, over: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(address) else { return };
    let large = doc! { "_id": "large", "text": "t".repeat(15 * MEGABYTE) };
    let _ = client.try_command("d", doc! { "insert": "orders", "documents": [large] }, SOON);
    let mut asked = Vec::new();
    while !is_over(over) && asked.len() < 12 {
        let Ok(mut client) = Client::try_connect(address) else { return };
        let change = doc! {
            "findAndModify": "orders", "query": { "_id": "large" }, "update": { "$set": { "a": 1 } }, "$db": "d",
        };
        let _ = client.try_send_bytes(&Message::new(change).to_frame(1, 0).to_bytes());
        asked.push(client);
    }
    while !is_over(over) {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Connects and sends malformed messages.
pub(crate) fn malformed(address: &str, _: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(address) else { return };
    let _ = client.try_send_bytes(&header(7, OP_MSG));
    let _ = client.receive_within(SOON);
}

/// Statements whose field names, values and collection names are one megabyte long.
pub(crate) fn long_words(address: &str, over: &AtomicBool) {
    let Ok(mut client) = Client::try_connect(address) else { return };
    let long = "w".repeat(MEGABYTE);
    let mut unknown = Document::new();
    unknown.insert("q", doc! {});
    unknown.insert("u", doc! {});
    unknown.insert(long.clone(), 1);
    let mut set = Document::new();
    set.insert(long.clone(), 1);
    let commands = [
        doc! { "update": "orders", "updates": [unknown] },
        doc! { "update": "orders", "updates": [{ "q": { "_id": &long }, "u": set }] },
        doc! { "insert": format!("{long}.orders"), "documents": [{}] },
        doc! { "update": "tried", "updates": [{ "q": { "_id": &long }, "u": { "n1": &long } }] },
    ];
    for command in commands {
        if is_over(over) || client.try_command("d", command, SOON).is_none() {
            return;
        }
    }
}
