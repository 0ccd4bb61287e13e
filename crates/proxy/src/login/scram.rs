//! SCRAM (RFC 5802, RFC 7677) as far as a proxy needs it: the user of a relayed login, and logging in again as that user
//! without the password.
//!
//! A client proves that it knows ClientKey: ClientProof = ClientKey XOR HMAC(StoredKey, AuthMessage). A proxy that has relayed
//! the messages and knows StoredKey, which a user may read of itself (`usersInfo` with `showCredentials`), can compute
//! ClientKey and log in with it. It does not reveal the password.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use md5::Md5;
use pbkdf2::pbkdf2_hmac_array;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A SCRAM mechanism of MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    Sha1,
    Sha256,
}

impl Mechanism {
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha1];

    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "SCRAM-SHA-1",
            Self::Sha256 => "SCRAM-SHA-256",
        }
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(bytes).to_vec(),
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
        match self {
            Self::Sha1 => {
                let mut mac = Hmac::<Sha1>::new_from_slice(key).ok()?;
                mac.update(bytes);
                Some(mac.finalize().into_bytes().to_vec())
            }
            Self::Sha256 => {
                let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
                mac.update(bytes);
                Some(mac.finalize().into_bytes().to_vec())
            }
        }
    }
}

/// What the server stores of a user for one mechanism.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct StoredCredentials {
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

/// What is needed to log in as a user. It is kept in memory only, and erased when it is dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct ClientKey {
    #[zeroize(skip)]
    mechanism: Mechanism,
    key: Vec<u8>,
    server_key: Vec<u8>,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientKey").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for StoredCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").finish_non_exhaustive()
    }
}

/// Returns the user that a client's first message names; `None` if it cannot be parsed, or names another identity to act
/// as (authzid).
#[must_use]
pub fn user_of(client_first: &[u8]) -> Option<String> {
    let name = field(bare(std::str::from_utf8(client_first).ok()?)?, 'n')?;
    Some(name.replace("=2C", ",").replace("=3D", "="))
}

/// The messages of a relayed login, as far as they are known.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    client_first: Vec<u8>,
    server_first: Vec<u8>,
    client_final: Vec<u8>,
}

impl Transcript {
    /// Records the payload of a request.
    pub fn client(&mut self, payload: &[u8]) {
        if self.client_first.is_empty() {
            self.client_first = payload.to_vec();
        } else if self.client_final.is_empty() {
            self.client_final = payload.to_vec();
        }
    }

    /// Records the payload of a reply.
    pub fn server(&mut self, payload: &[u8]) {
        if self.server_first.is_empty() {
            self.server_first = payload.to_vec();
        }
    }

    /// Computes the key that the client has proved to know; `None` if the messages do not fit `stored`.
    #[must_use]
    pub fn client_key(&self, mechanism: Mechanism, stored: &StoredCredentials) -> Option<ClientKey> {
        let first = bare(std::str::from_utf8(&self.client_first).ok()?)?;
        let server = std::str::from_utf8(&self.server_first).ok()?;
        let (without_proof, proof) = std::str::from_utf8(&self.client_final).ok()?.rsplit_once(",p=")?;
        let auth_message = format!("{first},{server},{without_proof}");
        let signature = mechanism.hmac(&stored.stored_key, auth_message.as_bytes())?;
        let proof = BASE64.decode(proof).ok().filter(|proof| proof.len() == signature.len())?;
        let key = xor(&proof, &signature);
        let fits = mechanism.hash(&key) == stored.stored_key;
        fits.then(|| ClientKey { mechanism, key, server_key: stored.server_key.clone() })
    }
}

/// The salt and the number of iterations in the server's first message, of which a [`ClientKey`] is derived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derivation {
    salt: Vec<u8>,
    iterations: u32,
}

impl Derivation {
    /// Reads the server's first message; `None` if it is malformed, or asks for a weak or an endless derivation.
    #[must_use]
    pub fn of_server_first(message: &[u8]) -> Option<Self> {
        const ITERATIONS: std::ops::RangeInclusive<u32> = 4096..=10_000_000;
        let message = std::str::from_utf8(message).ok()?;
        let salt = BASE64.decode(field(message, 's')?).ok()?;
        let iterations = field(message, 'i')?.parse().ok().filter(|count| ITERATIONS.contains(count))?;
        Some(Self { salt, iterations })
    }
}

impl ClientKey {
    /// Derives the key of a user from its password; `None` if the password contains characters that SCRAM prohibits.
    #[must_use]
    pub fn derive(mechanism: Mechanism, user: &str, password: &str, derivation: &Derivation) -> Option<Self> {
        let prepared = match mechanism {
            Mechanism::Sha1 => hex::encode(Md5::digest(format!("{user}:mongo:{password}"))),
            Mechanism::Sha256 => stringprep::saslprep(password).ok()?.into_owned(),
        };
        let (password, Derivation { salt, iterations }) = (prepared.as_bytes(), derivation);
        let salted = match mechanism {
            Mechanism::Sha1 => pbkdf2_hmac_array::<Sha1, 20>(password, salt, *iterations).to_vec(),
            Mechanism::Sha256 => pbkdf2_hmac_array::<Sha256, 32>(password, salt, *iterations).to_vec(),
        };
        let key = mechanism.hmac(&salted, b"Client Key")?;
        let server_key = mechanism.hmac(&salted, b"Server Key")?;
        Some(Self { mechanism, key, server_key })
    }
}

/// A login of docward's own with a [`ClientKey`].
#[derive(Debug)]
pub struct OwnLogin<'k> {
    key: &'k ClientKey,
    first: String,
    /// The server's signature that the last reply must have, once it is known.
    signature: Vec<u8>,
}

impl<'k> OwnLogin<'k> {
    /// `nonce` must be random and unique.
    #[must_use]
    pub fn new(key: &'k ClientKey, user: &str, nonce: &[u8]) -> Self {
        Self::continuing(key, first_message(user, nonce))
    }

    /// Continues after [`first_message`] has been sent.
    #[must_use]
    pub fn continuing(key: &'k ClientKey, first: String) -> Self {
        Self { key, first, signature: Vec::new() }
    }

    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.key.mechanism
    }

    /// Returns the payload of the first message.
    #[must_use]
    pub fn first(&self) -> Vec<u8> {
        with_header(&self.first)
    }

    /// Returns the payload of the second message; `None` if the server's is wrong.
    pub fn last(&mut self, server_first: &[u8]) -> Option<Vec<u8>> {
        let server = std::str::from_utf8(server_first).ok()?;
        let nonce = field(server, 'r').filter(|nonce| {
            let own = field(&self.first, 'r').unwrap_or_default();
            nonce.starts_with(own) && nonce.len() > own.len()
        })?;
        // "biws" is the encoded "n,,": no channel binding.
        let without_proof = format!("c=biws,r={nonce}");
        let auth_message = format!("{},{server},{without_proof}", self.first);
        let mechanism = self.key.mechanism;
        let stored_key = mechanism.hash(&self.key.key);
        let signature = mechanism.hmac(&stored_key, auth_message.as_bytes())?;
        self.signature = mechanism.hmac(&self.key.server_key, auth_message.as_bytes())?;
        Some(format!("{without_proof},p={}", BASE64.encode(xor(&self.key.key, &signature))).into_bytes())
    }

    /// Whether the server has proved that it knows the user.
    #[must_use]
    pub fn is_genuine(&self, server_final: &[u8]) -> bool {
        let signature = std::str::from_utf8(server_final).ok().and_then(|text| field(text, 'v'));
        let signature = signature.and_then(|text| BASE64.decode(text).ok());
        !self.signature.is_empty() && signature.as_ref() == Some(&self.signature)
    }
}

/// Returns the client's first message without the GS2 header. `nonce` must be random and unique.
#[must_use]
pub fn first_message(user: &str, nonce: &[u8]) -> String {
    let user = user.replace('=', "=3D").replace(',', "=2C");
    format!("n={user},r={}", BASE64.encode(nonce))
}

/// Returns the payload of the first message.
#[must_use]
pub fn with_header(first: &str) -> Vec<u8> {
    format!("n,,{first}").into_bytes()
}

/// The client's first message without the GS2 header; `None` if the header names an identity to act as.
fn bare(client_first: &str) -> Option<&str> {
    ["n,,", "y,,"].into_iter().find_map(|header| client_first.strip_prefix(header))
}

/// The value of an attribute.
fn field(message: &str, name: char) -> Option<&str> {
    message.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='))
}

fn xor(left: &[u8], right: &[u8]) -> Vec<u8> {
    left.iter().zip(right).map(|(left, right)| left ^ right).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3: user "user", password "pencil".
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const SERVER_FIRST: &[u8] =
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    /// Derived from the password as the server does.
    fn stored() -> StoredCredentials {
        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let hmac = |key: &[u8], bytes: &[u8]| Mechanism::Sha256.hmac(key, bytes).unwrap();
        let mut block = hmac(b"pencil", &[&salt[..], &[0, 0, 0, 1]].concat());
        let mut salted = block.clone();
        for _ in 1..4096 {
            block = hmac(b"pencil", &block);
            salted = xor(&salted, &block);
        }
        let client_key = hmac(&salted, b"Client Key");
        StoredCredentials { stored_key: Mechanism::Sha256.hash(&client_key), server_key: hmac(&salted, b"Server Key") }
    }

    fn transcript() -> Transcript {
        let mut transcript = Transcript::default();
        transcript.client(CLIENT_FIRST);
        transcript.server(SERVER_FIRST);
        transcript.client(CLIENT_FINAL);
        transcript.server(SERVER_FINAL);
        transcript
    }

    #[test]
    fn the_key_of_a_relayed_login_logs_in_again() {
        let key = transcript().client_key(Mechanism::Sha256, &stored()).unwrap();
        let mut login = OwnLogin::new(&key, "user", b"");
        // The nonce of the example instead of docward's own.
        login.first = "n=user,r=rOprNGfwEbeRWgbNEkqO".to_owned();
        assert_eq!(login.first(), CLIENT_FIRST);
        assert_eq!(login.last(SERVER_FIRST).unwrap(), CLIENT_FINAL);
        assert!(login.is_genuine(SERVER_FINAL));
        assert!(!login.is_genuine(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G5="));
    }

    #[test]
    fn a_key_is_derived_from_the_password() {
        let derivation = Derivation::of_server_first(SERVER_FIRST).unwrap();
        let key = ClientKey::derive(Mechanism::Sha256, "user", "pencil", &derivation).unwrap();
        assert_eq!(Some(key), transcript().client_key(Mechanism::Sha256, &stored()));
        let other = ClientKey::derive(Mechanism::Sha256, "user", "pencils", &derivation);
        assert_ne!(other, transcript().client_key(Mechanism::Sha256, &stored()));
        for weak in ["r=x,s=AAAA,i=1", "r=x,s=AAAA,i=99999999", "r=x,s=%,i=4096", "r=x,i=4096"] {
            assert_eq!(Derivation::of_server_first(weak.as_bytes()), None, "{weak}");
        }
    }

    #[test]
    fn a_transcript_that_does_not_fit_has_no_key() {
        let mut wrong = stored();
        wrong.stored_key = vec![1; 32];
        assert_eq!(transcript().client_key(Mechanism::Sha256, &wrong), None);
        assert_eq!(transcript().client_key(Mechanism::Sha1, &stored()), None);
        assert_eq!(Transcript::default().client_key(Mechanism::Sha256, &stored()), None);
    }

    #[test]
    fn a_server_with_another_nonce_gets_no_proof() {
        let key = transcript().client_key(Mechanism::Sha256, &stored()).unwrap();
        let mut login = OwnLogin::new(&key, "user", b"0123456789");
        assert_eq!(login.last(SERVER_FIRST), None);
        assert!(!login.is_genuine(SERVER_FINAL));
    }

    #[test]
    fn the_user_is_read_from_the_first_message() {
        for (message, user) in [
            ("n,,n=ann,r=x", Some("ann")),
            ("y,,n=a=2Cb=3Dc,r=x", Some("a,b=c")),
            ("n,a=root,n=ann,r=x", None),
            ("p=tls-unique,,n=ann,r=x", None),
            ("n,,r=x", None),
        ] {
            assert_eq!(user_of(message.as_bytes()).as_deref(), user, "{message}");
        }
        assert_eq!(user_of(&[0xff]), None);
    }

    #[test]
    fn keys_are_not_printed() {
        let key = transcript().client_key(Mechanism::Sha256, &stored()).unwrap();
        assert_eq!(format!("{key:?} {:?}", stored()), "ClientKey { mechanism: Sha256, .. } Stored { .. }");
    }
}
