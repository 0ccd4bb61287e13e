//! A minimal client that sends any bytes in any order, and returns the reply frames as they arrive. For messages that
//! drivers never send; it has no sessions and no retries.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use bson::{Document, doc};
use socket2::{Domain, Socket, Type};

use super::driver::ok;
use super::frame::{Frame, Message};
use super::process::{TIMEOUT, uninterrupted};

/// One connection.
pub struct Client {
    stream: TcpStream,
    last_request_id: i32,
}

impl Client {
    /// Connects to `HOST:PORT`; panics if the connection is refused.
    pub fn connect(address: &str) -> Client {
        Client::try_connect(address).unwrap_or_else(|error| panic!("connect to {address}: {error}"))
    }

    /// # Errors
    /// The system's error if the connection is refused.
    pub fn try_connect(address: &str) -> io::Result<Client> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Client { stream, last_request_id: 0 })
    }

    /// Connects from this local address: all of 127.0.0.0/8 are available.
    pub fn connect_from(from: [u8; 4], address: &str) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::from((from, 0)).into()).unwrap();
        socket.connect(&address.parse::<SocketAddr>().unwrap().into()).unwrap();
        socket.set_tcp_nodelay(true).unwrap();
        Client { stream: socket.into(), last_request_id: 0 }
    }

    /// Sending fails when it takes longer.
    pub fn set_write_timeout(&mut self, timeout: Duration) {
        self.stream.set_write_timeout(Some(timeout)).unwrap();
    }

    /// Sends these bytes unchanged.
    ///
    /// # Errors
    /// Socket errors, for instance after the peer has closed the connection.
    pub fn try_send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends these bytes unchanged; panics if the connection is closed.
    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.try_send_bytes(bytes).unwrap();
    }

    /// Sends a message under the next request id, which is returned.
    pub fn send(&mut self, message: &Message) -> i32 {
        self.last_request_id += 1;
        self.send_bytes(&message.to_frame(self.last_request_id, 0).to_bytes());
        self.last_request_id
    }

    /// The next frame; panics if the connection closes instead, or none arrives in time.
    pub fn receive(&mut self) -> Frame {
        let frame = self.receive_within(TIMEOUT).unwrap();
        frame.expect("the connection was closed instead of a reply")
    }

    /// The next frame, or `None` if the connection was closed.
    ///
    /// # Errors
    /// `TimedOut` if none arrives in time, and other socket errors.
    pub fn receive_within(&mut self, timeout: Duration) -> io::Result<Option<Frame>> {
        self.stream.set_read_timeout(Some(timeout))?;
        // The timeout applies only to the frame's first byte: the rest is read despite interruptions.
        match uninterrupted(|| Frame::read(&mut self.stream)) {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(None),
            // Linux reports a read timeout with this error.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(io::Error::new(ErrorKind::TimedOut, error)),
            other => other,
        }
    }

    /// Sends a message and parses its reply.
    pub fn exchange(&mut self, message: &Message) -> Message {
        let request_id = self.send(message);
        let frame = self.receive();
        assert_eq!(frame.response_to, request_id, "reply to another request");
        Message::parse(&frame)
    }

    /// Runs a command as drivers do and returns the reply's body, including errors.
    pub fn command(&mut self, database: &str, mut command: Document) -> Document {
        command.insert("$db", database);
        self.exchange(&Message::new(command)).body().clone()
    }

    /// Stores documents.
    pub fn seed(&mut self, database: &str, collection: &str, documents: Vec<Document>) {
        let reply = self.command(database, doc! { "insert": collection, "documents": documents });
        assert!(!reply.contains_key("writeErrors") && ok(&reply), "{reply}");
    }

    /// The documents of a collection by `_id`, at most one batch of them.
    pub fn stored(&mut self, database: &str, collection: &str) -> Vec<Document> {
        let reply = self.command(database, doc! { "find": collection, "sort": { "_id": 1 } });
        let batch = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch.iter().map(|document| document.as_document().unwrap().clone()).collect()
    }

    /// Waits until docward's metrics include all earlier messages of this connection: a reply is counted after it is
    /// sent, so its client may scrape too early.
    pub fn wait_until_counted(&mut self) {
        self.command("admin", doc! { "hello": 1 });
    }

    /// The reply's body; `None` when the connection fails or none comes in time.
    pub fn try_command(&mut self, database: &str, mut command: Document, timeout: Duration) -> Option<Document> {
        command.insert("$db", database);
        self.last_request_id += 1;
        self.try_send_bytes(&Message::new(command).to_frame(self.last_request_id, 0).to_bytes()).ok()?;
        let frame = self.receive_within(timeout).ok()??;
        assert_eq!(frame.response_to, self.last_request_id, "reply to another request");
        Some(Message::parse(&frame).body().clone())
    }

    /// Returns true if the peer closes the connection without sending more; panics on a frame.
    pub fn closes_within(&mut self, timeout: Duration) -> bool {
        match self.receive_within(timeout) {
            Ok(None) => true,
            Ok(Some(frame)) => panic!("a frame instead of a close: {frame:?}"),
            Err(error) if error.kind() == ErrorKind::TimedOut => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Shuts down the sending side; replies can still be received.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }
}
