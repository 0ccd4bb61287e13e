//! A DNS server on loopback with given SRV and TXT records. Written by hand, so that the library of docward's
//! resolver does not check itself.

use std::net::{SocketAddr, UdpSocket};

const SRV: u16 = 33;
const TXT: u16 = 16;

/// A record's name without the trailing dot, and its content.
#[derive(Clone)]
pub enum Record {
    Service { name: String, target: String, port: u16 },
    Text { name: String, text: String },
}

/// Answers until the process ends; returns its address.
pub fn serve(records: Vec<Record>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, asker)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&answer(&buffer[..length], &records), asker);
        }
    });
    address
}

fn answer(query: &[u8], records: &[Record]) -> Vec<u8> {
    let (name, end) = read_name(query, 12);
    let kind = u16::from_be_bytes([query[end], query[end + 1]]);
    let answers: Vec<Vec<u8>> = records.iter().filter_map(|record| record.data(&name, kind)).collect();
    // NXDOMAIN for unknown names; claims that recursion is available.
    let code = if answers.is_empty() { 3 } else { 0 };
    let mut out = [&query[..2], &[0x81, 0x80 | code, 0, 1, 0, answers.len() as u8, 0, 0, 0, 0]].concat();
    out.extend_from_slice(&query[12..end + 4]);
    for data in answers {
        // The question's name as a pointer; class IN; a TTL of one minute.
        out.extend_from_slice(&[0xc0, 12]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1, 0, 0, 0, 60]);
        out.extend_from_slice(&(data.len() as u16).to_be_bytes());
        out.extend_from_slice(&data);
    }
    out
}

impl Record {
    fn data(&self, asked: &str, asked_kind: u16) -> Option<Vec<u8>> {
        match self {
            Record::Service { name, target, port } if name.eq_ignore_ascii_case(asked) && asked_kind == SRV => {
                let mut data = vec![0, 1, 0, 1];
                data.extend_from_slice(&port.to_be_bytes());
                for label in target.split('.') {
                    data.push(label.len() as u8);
                    data.extend_from_slice(label.as_bytes());
                }
                data.push(0);
                Some(data)
            }
            Record::Text { name, text } if name.eq_ignore_ascii_case(asked) && asked_kind == TXT => {
                Some([&[text.len() as u8], text.as_bytes()].concat())
            }
            _ => None,
        }
    }
}

/// Reads a name and returns it with its end; questions contain no pointers.
fn read_name(message: &[u8], mut at: usize) -> (String, usize) {
    let mut labels = Vec::new();
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..at + 1 + length]).into_owned());
        at += 1 + length;
    }
    (labels.join("."), at + 1)
}
