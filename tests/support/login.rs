//! A login by SCRAM-SHA-256 (RFC 5802, RFC 7677) on a single connection; a driver would also open monitoring
//! connections.

use std::num::NonZeroU32;
use std::sync::Mutex;
use std::time::Duration;

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

/// A user's side of logins. Derives the key once for a salt, as drivers do.
pub struct Scram {
    user: String,
    password: String,
    /// The salt and the rounds, and the client key.
    derived: Mutex<Option<(String, NonZeroU32, hmac::Tag)>>,
}

impl Scram {
    #[must_use]
    pub fn new(user: &str, password: &str) -> Scram {
        Scram { user: user.to_owned(), password: password.to_owned(), derived: Mutex::new(None) }
    }

    fn bare(&self) -> String {
        format!("n={},r=docwardtest", self.user)
    }

    /// The first message. `two_steps`: the login has no third step without content, as drivers have it.
    #[must_use]
    pub fn start(&self, two_steps: bool) -> Document {
        let first = payload(format!("n,,{}", self.bare()));
        let mut start = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": first };
        if two_steps {
            start.insert("options", doc! { "skipEmptyExchange": true });
        }
        start
    }

    /// The second message, from the reply to the first one.
    #[must_use]
    pub fn proof(&self, reply: &Document) -> Document {
        let (first, part) = attributes(reply);
        let key = self.key(part('s'), part('i').parse().unwrap());
        let sign = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
        let without_proof = format!("c=biws,r={}", part('r'));
        let stored = digest::digest(&digest::SHA256, key.as_ref());
        let signature = sign(stored.as_ref(), format!("{},{first},{without_proof}", self.bare()).as_bytes());
        let proof: Vec<u8> = key.as_ref().iter().zip(signature.as_ref()).map(|(key, sign)| key ^ sign).collect();
        let last = payload(format!("{without_proof},p={}", STANDARD.encode(proof)));
        let conversation = reply.get_i32("conversationId").unwrap();
        doc! { "saslContinue": 1, "conversationId": conversation, "payload": last }
    }

    fn key(&self, salt: String, rounds: NonZeroU32) -> hmac::Tag {
        let mut derived = self.derived.lock().unwrap();
        if let Some((_, _, key)) = derived.as_ref().filter(|(known, count, _)| *known == salt && *count == rounds) {
            return *key;
        }
        let mut salted = [0; 32];
        let bytes = STANDARD.decode(&salt).unwrap();
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &bytes, self.password.as_bytes(), &mut salted);
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &salted), b"Client Key");
        *derived = Some((salt, rounds, key));
        key
    }
}

/// Logs in. Returns the code of the server's error; `None`: the connection was closed, or it took too long.
pub fn try_log_in(client: &mut Client, scram: &Scram, timeout: Duration) -> Option<Result<(), i32>> {
    let begun = client.try_command("admin", scram.start(true), timeout)?;
    let failure = |reply: &Document| reply.get_i32("code").unwrap_or_else(|_| panic!("{reply}"));
    if !begun.contains_key("conversationId") {
        return Some(Err(failure(&begun)));
    }
    let ended = client.try_command("admin", scram.proof(&begun), timeout)?;
    Some(if ended.get_bool("done").unwrap_or(false) { Ok(()) } else { Err(failure(&ended)) })
}

/// Logs in a user of `admin`; panics if the server rejects.
pub fn log_in(client: &mut Client, user: &str, password: &str) {
    let scram = Scram::new(user, password);
    let reply = client.command("admin", scram.start(false));
    let mut reply = client.command("admin", scram.proof(&reply));
    while reply.get_bool("done").is_ok_and(|done| !done) {
        let conversation = reply.get_i32("conversationId").unwrap();
        let nothing = payload(String::new());
        reply = client.command("admin", doc! { "saslContinue": 1, "conversationId": conversation, "payload": nothing });
    }
    assert_eq!(reply.get_f64("ok").unwrap(), 1.0, "{reply}");
}
