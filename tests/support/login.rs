//! A login by SCRAM-SHA-256 (RFC 5802, RFC 7677) on a single connection; a driver would also open monitoring
//! connections.

use std::num::NonZeroU32;

use aws_lc_rs::{digest, hmac, pbkdf2};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

use super::raw::Client;

fn payload(text: String) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: text.into_bytes() }
}

/// The attributes of a reply's payload, by letter.
fn attributes(reply: &Document) -> (String, impl Fn(char) -> String) {
    let text = String::from_utf8(reply.get_binary_generic("payload").unwrap_or_else(|_| panic!("{reply}")).clone());
    let text = text.unwrap();
    let parts = text.clone();
    let part = move |letter: char| {
        let part = parts.split(',').find_map(|part| part.strip_prefix(letter)?.strip_prefix('='));
        part.unwrap().to_owned()
    };
    (text, part)
}

/// Logs in a user of `admin`; panics if the server refuses.
pub fn log_in(client: &mut Client, user: &str, password: &str) {
    let bare = format!("n={user},r=docwardtest");
    let start = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload(format!("n,,{bare}")) };
    let reply = client.command("admin", start);
    let (first, part) = attributes(&reply);
    let (salt, rounds) = (STANDARD.decode(part('s')).unwrap(), part('i').parse::<NonZeroU32>().unwrap());
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
    let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let key = sign(&salted, b"Client Key");
    let without_proof = format!("c=biws,r={}", part('r'));
    let stored = digest::digest(&digest::SHA256, key.as_ref());
    let signature = sign(stored.as_ref(), format!("{bare},{first},{without_proof}").as_bytes());
    let proof: Vec<u8> = key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
    let last = payload(format!("{without_proof},p={}", STANDARD.encode(proof)));
    let mut go_on = doc! { "saslContinue": 1, "conversationId": reply.get_i32("conversationId").unwrap() };
    go_on.insert("payload", last);
    let mut reply = client.command("admin", go_on);
    while reply.get_bool("done").is_ok_and(|done| !done) {
        let conversation = reply.get_i32("conversationId").unwrap();
        let nothing = payload(String::new());
        reply = client.command("admin", doc! { "saslContinue": 1, "conversationId": conversation, "payload": nothing });
    }
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
}
