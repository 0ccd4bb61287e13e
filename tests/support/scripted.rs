//! A scripted upstream, for replies that no server can be made to send: it answers hello as a standalone mongod 6.0
//! does, and passes every other frame to the test's closure. Use `mongod` for everything that a real mongod can do.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use bson::{Document, doc};

use super::frame::{Frame, Message, OP_MSG, OP_QUERY};

/// Instead of a reply frame: the connection is closed here.
pub const HANG_UP: Vec<u8> = Vec::new();

type Script = Box<dyn FnMut(Frame) -> Vec<Vec<u8>> + Send>;

/// A listening upstream; dropping it closes its listener and its connections.
pub struct Peer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    hello: Document,
    script: Mutex<Script>,
    requests: Mutex<Vec<Frame>>,
    connections: Mutex<Vec<TcpStream>>,
    stopped: AtomicBool,
}

impl Peer {
    /// Answers each request frame of every connection with the raw reply frames that `script` returns: none, one,
    /// several, or bytes that are not a frame.
    pub fn start(script: impl FnMut(Frame) -> Vec<Vec<u8>> + Send + 'static) -> Peer {
        Peer::with_hello(standalone_hello(), script)
    }

    /// The same with another reply to hello.
    pub fn with_hello(hello: Document, script: impl FnMut(Frame) -> Vec<Vec<u8>> + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            hello,
            script: Mutex::new(Box::new(script)),
            requests: Mutex::default(),
            connections: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.stopped.load(Ordering::SeqCst) {
                    break;
                }
                accepting.connections.lock().unwrap().push(stream.try_clone().unwrap());
                let serving = accepting.clone();
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Peer { address, shared }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    pub fn uri(&self) -> String {
        format!("mongodb://{}/", self.address)
    }

    /// All requests so far except hello and docward's check for access control, exactly as received.
    pub fn requests(&self) -> Vec<Frame> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Closes every open connection, like a server that shuts down.
    pub fn hang_up(&self) {
        for connection in self.shared.connections.lock().unwrap().drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes the accepting thread
        self.hang_up();
    }
}

impl Shared {
    fn serve(&self, mut stream: TcpStream) {
        while let Ok(Some(request)) = Frame::read(&mut stream) {
            for reply in self.answer(request) {
                if reply == HANG_UP || stream.write_all(&reply).is_err() {
                    let _ = stream.shutdown(Shutdown::Both);
                    return;
                }
            }
        }
    }

    fn answer(&self, request: Frame) -> Vec<Vec<u8>> {
        if is_hello(&request) {
            let reply = match request.op_code {
                OP_QUERY => Frame::reply(request.request_id, &self.hello),
                _ => Message::new(self.hello.clone()).to_frame(0, request.request_id),
            };
            return vec![reply.to_bytes()];
        }
        if asks_for_login_demand(&request) {
            return vec![reply_to(&request, doc! { "n": 0, "ok": 1.0 })];
        }
        self.requests.lock().unwrap().push(request.clone());
        (self.script.lock().unwrap())(request)
    }
}

/// One OP_MSG reply to `request`, in the form that a script returns.
pub fn reply_to(request: &Frame, body: Document) -> Vec<u8> {
    Message::new(body).to_frame(0, request.request_id).to_bytes()
}

/// Whether this is docward's own check for access control, on its own connections.
fn asks_for_login_demand(request: &Frame) -> bool {
    request.op_code == OP_MSG
        && Message::parse(request).body().get_str("count").is_ok_and(|name| name == "docward.none")
}

fn is_hello(request: &Frame) -> bool {
    let command = match request.op_code {
        OP_MSG => Message::parse(request).body().clone(),
        OP_QUERY => request.query_document(),
        _ => return false,
    };
    let name = command.keys().next().map(String::as_str);
    matches!(name, Some("hello" | "isMaster" | "ismaster"))
}

/// The hello reply of a standalone mongod 6.0, as far as drivers read it.
/// The reply of a standalone mongod 6.0 to hello.
pub fn standalone_hello() -> Document {
    doc! {
        "helloOk": true,
        "isWritablePrimary": true,
        "ismaster": true,
        "maxBsonObjectSize": 16 * 1024 * 1024,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": bson::DateTime::now(),
        "logicalSessionTimeoutMinutes": 30,
        "connectionId": 1,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "readOnly": false,
        "ok": 1.0,
    }
}
