//! The attackers. Each function runs once, is called again until the attack is over, and checks regularly whether it is.
//! It counts what has reached docward, so that an attack that does not take place is noticed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::thread::{self, Scope};
use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

use super::MEGABYTE;
use support::frame::{MORE_TO_COME, Message, OP_MSG, OP_QUERY, header};
use support::random::Random;
use support::raw::Client;

const ZLIB: u8 = 2;
const SOON: Duration = Duration::from_secs(2);

/// Bytes sent at once. What the kernel copies after the peer has closed costs only the attacker.
const PIECE: usize = 128 * 1024;
/// Pause before a connection that was closed is replaced. Connections at full speed would only measure the machine:
/// `SECURITY.md` promises nothing about floods.
const RECONNECT_PAUSE: Duration = Duration::from_millis(20);

/// A connection that sends as much as the peer accepts. What it sends is made once for the whole process: making it again
/// for each connection would use more CPU than docward.
struct Pusher {
    stream: TcpStream,
    bytes: &'static [u8],
    sent: usize,
    is_closed: bool,
}

impl Pusher {
    fn new(address: &str, bytes: &'static [u8]) -> Option<Pusher> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(Pusher { stream, bytes, sent: 0, is_closed: false })
    }

    /// Returns false if the connection is closed.
    fn push(&mut self) -> bool {
        self.is_closed |= !self.is_open_after_push();
        !self.is_closed
    }

    fn is_open_after_push(&mut self) -> bool {
        let rest = &self.bytes[self.sent..];
        match self.stream.write(&rest[..rest.len().min(PIECE)]) {
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

/// What the threads of an attack share.
pub(crate) struct Attack {
    address: String,
    pub(crate) over: AtomicBool,
    /// Connections or messages that have had their effect; each attacker defines which.
    pub(crate) reached: AtomicUsize,
}

impl Attack {
    pub(crate) fn new(address: &str) -> Attack {
        Attack { address: address.to_owned(), over: AtomicBool::default(), reached: AtomicUsize::default() }
    }

    /// Runs the attacker on this many threads until the attack is over.
    pub(crate) fn start<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, attacker: fn(&Attack), threads: usize) {
        for _ in 0..threads {
            scope.spawn(move || {
                while !self.is_over() {
                    attacker(self);
                }
            });
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn reached(&self) {
        self.reached.fetch_add(1, Ordering::Relaxed);
    }
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

/// Eight connections, each with 44 of the 45 MB of an insert into a protected collection, and then silence. Reached:
/// connections that have sent a megabyte, or were closed because of their first bytes.
pub(crate) fn half_inserts(attack: &Attack) {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes = beginning(&string("insert", "orders"));
        bytes.extend(vec![b'x'; 44_000_000]);
        bytes
    });
    let mut all: Vec<Pusher> = (0..8).filter_map(|_| Pusher::new(&attack.address, &BYTES)).collect();
    let mut counted = vec![false; all.len()];
    while !attack.is_over() {
        for (pusher, counted) in all.iter_mut().zip(&mut counted) {
            let is_open = !pusher.is_closed && pusher.push();
            if !*counted && (pusher.sent > MEGABYTE || pusher.sent > 0 && !is_open) {
                *counted = true;
                attack.reached();
            }
        }
        if all.iter().all(|pusher| pusher.is_closed) {
            return thread::sleep(RECONNECT_PAUSE * all.len() as u32);
        }
        if all.iter().all(Pusher::is_sent) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Sends 10 MB that do not identify the message, then 30 bytes at a time: a login of tiny fields, an endless key, an
/// endless collection name. Reached: pieces of 30 bytes that were sent, and connections that were closed before.
pub(crate) fn dribbles(attack: &Attack) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    static BEGINNINGS: LazyLock<[Vec<u8>; 3]> = LazyLock::new(|| {
        let tiny = [8, b'a', 0, 1].repeat(10 * MEGABYTE / 4);
        [
            beginning(&[[&[16][..], b"saslStart\0", &[1, 0, 0, 0]].concat(), tiny].concat()),
            beginning(&[vec![2], vec![b'k'; 10 * MEGABYTE]].concat()),
            [header(45_000_000, OP_QUERY), vec![0; 4], vec![b'c'; 10 * MEGABYTE]].concat(),
        ]
    });
    let number = NEXT.fetch_add(1, Ordering::Relaxed) % BEGINNINGS.len();
    let Some(mut pusher) = Pusher::new(&attack.address, &BEGINNINGS[number]) else { return };
    while !attack.is_over() && !pusher.is_sent() {
        if !pusher.push() {
            attack.reached();
            return thread::sleep(RECONNECT_PAUSE);
        }
    }
    while !attack.is_over() && pusher.push() {
        attack.reached();
        pusher.bytes = &[b'a'; 30];
        pusher.sent = 0;
        thread::sleep(Duration::from_millis(20));
    }
}

/// A connection with an application name of half a megabyte whose writes are rejected, or would be by a rule in shadow
/// mode. Reached: replies to writes.
pub(crate) fn long_names(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    // docward closes the connection after a hello of more than a megabyte.
    let name = "n".repeat(MEGABYTE / 2);
    let metadata = doc! { "application": { "name": name }, "driver": { "name": "x", "version": "1" } };
    let hello = doc! { "hello": 1, "client": metadata };
    if client.try_command("admin", hello, SOON).is_none() {
        return;
    }
    for _ in 0..200 {
        if attack.is_over() {
            return;
        }
        let replace = doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 } }] };
        let tried = doc! { "update": "tried", "updates": [{ "q": { "_id": 1 }, "u": { "n1": -1 } }] };
        for command in [replace, tried] {
            if client.try_command("d", command, SOON).is_none() {
                return;
            }
            attack.reached();
        }
    }
}

/// 100,000 replacements that a rule rejects, in a message of about ten kilobytes. Reached: replies.
pub(crate) fn packed_rejections(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    if client.try_command("admin", doc! { "hello": 1, "compression": ["zlib"] }, SOON).is_none() {
        return;
    }
    // A small document of its own that all statements match: other attacks store large ones.
    let stored =
        doc! { "update": "orders", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "a": 1 } }, "upsert": true }] };
    if client.try_command("rejected", stored, SOON).is_none() {
        return;
    }
    static FRAME: OnceLock<Vec<u8>> = OnceLock::new();
    let frame = FRAME.get_or_init(|| {
        // Without optimisation docward takes too long for more.
        let count = if cfg!(debug_assertions) { 5_000 } else { 100_000 };
        let statements = vec![doc! { "q": {}, "u": {} }; count];
        let body = doc! { "update": "orders", "ordered": false, "$db": "rejected" };
        Message::new(body).sequence("updates", statements).to_frame(7, 0).compressed(ZLIB).to_bytes()
    });
    while !attack.is_over() {
        if client.try_send_bytes(frame).is_err() {
            return;
        }
        let Ok(Some(_)) = client.receive_within(Duration::from_secs(10)) else { return };
        attack.reached();
    }
}

/// In turns, connections with half an insert and connections that send many rejections. Reached: replies.
pub(crate) fn rejections_and_halves(attack: &Attack) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if NEXT.fetch_add(1, Ordering::Relaxed).is_multiple_of(2) {
        return packed_rejections(attack);
    }
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        // There is room for several in docward's budget.
        let mut bytes = beginning(&string("insert", "orders"));
        bytes[..4].copy_from_slice(&3_000_000_i32.to_le_bytes());
        bytes[21..25].copy_from_slice(&2_999_979_i32.to_le_bytes());
        bytes.extend(vec![b'x'; 2_900_000]);
        bytes
    });
    let Some(mut pusher) = Pusher::new(&attack.address, &BYTES) else { return };
    while !attack.is_over() && pusher.push() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Requests 15 MB on many connections, which docward converts to another compression, and never reads the replies.
/// Reached: requests.
pub(crate) fn converted_replies(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    let mut random = Random(7);
    let noise: Vec<u8> =
        std::iter::repeat_with(|| random.next_number().to_le_bytes()).take(2 * MEGABYTE - 64).flatten().collect();
    let large = Binary { subtype: BinarySubtype::Generic, bytes: noise };
    let large = doc! { "q": { "_id": "large" }, "u": { "$set": { "bytes": large } }, "upsert": true };
    if client.try_command("d", doc! { "update": "free", "updates": [large] }, 10 * SOON).is_none() {
        return;
    }
    let mut asked = Vec::new();
    while !attack.is_over() && asked.len() < 12 {
        let Ok(mut client) = Client::try_connect(&attack.address) else { return };
        if client.try_command("admin", doc! { "hello": 1, "compression": ["zlib"] }, 5 * SOON).is_none() {
            return;
        }
        let find = Message::new(doc! { "find": "free", "filter": { "_id": "large" }, "$db": "d" });
        if client.try_send_bytes(&find.to_frame(1, 0).compressed(ZLIB).to_bytes()).is_ok() {
            attack.reached();
        }
        asked.push(client);
    }
    while !attack.is_over() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Requests 15 MB repeatedly and never reads the replies. Reached: requests.
pub(crate) fn unread_replies(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    let large = doc! { "_id": "large", "text": "t".repeat(15 * MEGABYTE) };
    let _ = client.try_command("d", doc! { "insert": "orders", "documents": [large] }, SOON);
    let mut asked = Vec::new();
    while !attack.is_over() && asked.len() < 12 {
        let Ok(mut client) = Client::try_connect(&attack.address) else { return };
        let change = doc! {
            "findAndModify": "orders", "query": { "_id": "large" }, "update": { "$set": { "a": 1 } }, "$db": "d",
        };
        if client.try_send_bytes(&Message::new(change).to_frame(1, 0).to_bytes()).is_ok() {
            attack.reached();
        }
        asked.push(client);
    }
    while !attack.is_over() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Connects and sends malformed messages. Reached: connections that docward closed.
pub(crate) fn malformed(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    let _ = client.try_send_bytes(&header(7, OP_MSG));
    if let Ok(None) = client.receive_within(SOON) {
        attack.reached();
    }
}

/// Statements whose field names, values and collection names are one megabyte long. Reached: replies.
pub(crate) fn long_words(attack: &Attack) {
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
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
        if attack.is_over() || client.try_command("d", command, SOON).is_none() {
            return;
        }
        attack.reached();
    }
}

/// Messages that docward logs in several kinds of lines, of texts that take twice their length in JSON: decisions of
/// twenty rules, and closed connections. Reached: replies and closed connections.
pub(crate) fn logged_texts(attack: &Attack) {
    let quotes = "\"".repeat(1000);
    let Ok(mut client) = Client::try_connect(&attack.address) else { return };
    let set: Document = (0..20).map(|number| (format!("n{number}"), (-1).into())).collect();
    let filter: Document = (0..5).map(|number| (format!("{quotes}{number}"), 1.into())).collect();
    let tried = doc! { "update": "tried", "updates": [{ "q": filter, "u": { "$set": set } }] };
    for _ in 0..4 {
        if attack.is_over() || client.try_command("d", tried.clone(), SOON).is_none() {
            return;
        }
        attack.reached();
    }
    let mut unknown = doc! { "q": {}, "u": {} };
    unknown.insert(quotes, 1);
    let unknown = doc! { "update": "orders", "updates": [unknown], "$db": "d" };
    let unacknowledged = Message { flags: MORE_TO_COME, ..Message::new(unknown) };
    if client.try_send_bytes(&unacknowledged.to_frame(1, 0).to_bytes()).is_ok()
        && let Ok(None) = client.receive_within(SOON)
    {
        attack.reached();
    }
}
