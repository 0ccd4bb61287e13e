//! A minimal HTTP client: one request per connection, sent exactly as written. Uses HTTP/1.0, so that a response's
//! body ends with the connection.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use serde_json::Value;

use super::process::TIMEOUT;

/// The response.
#[derive(Debug)]
pub struct HttpReply {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl HttpReply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// GET with a browser's `Host` header.
pub fn get(address: &str, path: &str) -> HttpReply {
    try_get(address, path).unwrap()
}

/// GET from an address that another process may be taking over.
pub fn try_get(address: &str, path: &str) -> io::Result<HttpReply> {
    try_request(address, "GET", path, &[("Host", address)], "")
}

/// POST of JSON.
pub fn post(address: &str, path: &str, body: &Value) -> HttpReply {
    request(address, "POST", path, &[("Host", address), ("Content-Type", "application/json")], &body.to_string())
}

pub fn request(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> HttpReply {
    try_request(address, method, path, headers, body).unwrap()
}

fn try_request(address: &str, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> io::Result<HttpReply> {
    let mut reply = send(address, method, path, headers, body)?;
    let (status, headers) = read_head(&mut reply)?;
    let mut body = String::new();
    reply.read_to_string(&mut body)?;
    Ok(HttpReply { status, headers, body })
}

fn send(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> io::Result<BufReader<TcpStream>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\n{headers}Content-Length: {length}\r\n\r\n");
    // A server that refuses a request may close the connection before it has read all of it.
    let _ = stream.write_all((head + body).as_bytes());
    Ok(BufReader::new(stream))
}

fn read_head(reply: &mut BufReader<TcpStream>) -> io::Result<(u16, Vec<(String, String)>)> {
    let mut line = String::new();
    reply.read_line(&mut line)?;
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    let status = status.ok_or_else(|| io::Error::new(ErrorKind::UnexpectedEof, format!("no answer: {line:?}")))?;
    let mut headers = Vec::new();
    for line in reply.lines() {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    Ok((status, headers))
}

/// Server-sent events, as they arrive.
pub struct Events(BufReader<TcpStream>);

impl Events {
    /// # Errors
    /// The status, if it is not 200.
    pub fn open(address: &str, path: &str) -> Result<Events, u16> {
        let mut reply = send(address, "GET", path, &[("Host", address)], "").unwrap();
        let (status, headers) = read_head(&mut reply).unwrap();
        if status != 200 {
            return Err(status);
        }
        let is_stream = |(name, value): &(String, String)| name == "content-type" && value == "text/event-stream";
        assert!(headers.iter().any(is_stream), "{headers:?}");
        Ok(Events(reply))
    }

    /// The name and the data of the next event; panics if none arrives in time.
    pub fn next_event(&mut self) -> (String, Value) {
        let (mut event, mut data) = (String::new(), String::new());
        let began = Instant::now();
        loop {
            let mut line = String::new();
            assert!(began.elapsed() < TIMEOUT, "no event, only signs of life");
            assert!(self.0.read_line(&mut line).unwrap() > 0, "the stream has ended");
            match line.trim_end().split_once(':') {
                None if data.is_empty() => {}
                None => return (event, serde_json::from_str(&data).unwrap()),
                Some(("event", value)) => value.trim().clone_into(&mut event),
                Some(("data", value)) => value.trim().clone_into(&mut data),
                Some(_) => {}
            }
        }
    }
}
