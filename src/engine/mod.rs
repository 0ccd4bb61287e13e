//! Interface of the engine as the proxy sees it. The bodies here are stand-ins; the founder replaces them.
pub mod handshake;
pub mod lookup;
use crate::patterns::RuleSet;
use lookup::{Found, LookupError};

/// What the first bytes of a client's frame say is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triage {
    /// Cannot be told yet: call again when more bytes of this frame are here (never returned for a whole frame).
    More,
    /// No rule concerns it: the bytes stream through as they come.
    Forward { expects_reply: bool },
    /// The same, but it may change who is authenticated: forget what is known of the user.
    Authenticate { expects_reply: bool },
    /// hello/isMaster, by OP_MSG or OP_QUERY: buffer whole, rewrite request and every reply.
    Hello,
    /// A rule may concern it (or it must be refused with a proper error): buffer it whole, then `Plan::new`.
    Judge,
}

/// `head`: the frame's first bytes, from its header on (at least 16). A bad length has been refused before.
pub fn triage(head: &[u8], _rules: &RuleSet) -> Triage {
    let _ = head;
    Triage::Forward { expects_reply: true }
}

/// What the engine remembers of one client connection.
#[derive(Debug, Default)]
pub struct Session {
    /// `client.application.name` of the handshake.
    pub app_name: Option<String>,
    /// "authDb.user" of who is authenticated; `None` until it was asked for.
    pub users: Option<Vec<String>>,
    /// "127.0.0.1:50000", for logs.
    pub client: String,
}

/// Wall clock, handed in.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970 UTC.
    pub milliseconds: i64,
}

#[derive(Debug)]
pub enum Step {
    /// Send this upstream; the plan must see the whole reply frame before it goes on.
    Exchange(Vec<u8>),
    /// Ask the service.
    Lookup(lookup::Lookup),
    /// Ends the plan: the message goes upstream as it came; its reply, if one is expected, streams through.
    ForwardOriginal { expects_reply: bool },
    /// Ends the plan: this goes upstream instead; its reply, if one is expected, streams through.
    Forward { message: Vec<u8>, expects_reply: bool },
    /// Ends the plan: this goes to the client.
    Reply(Vec<u8>),
    /// Ends the plan: nothing more is said (w: 0).
    Silent,
    /// Ends the plan and the connection; the text says why, for the log.
    Close(String),
}

#[derive(Debug)]
pub enum Input<'a> {
    Start,
    Reply(&'a [u8]),
    Found(Result<Found, LookupError>),
}

/// What a rule said about a statement; the proxy logs and counts it.
#[derive(Debug, Clone)]
pub struct Observation {
    pub rule: String,
    pub pattern: &'static str,
    /// "db.collection"
    pub namespace: String,
    /// "rewrite", "reject", "shadow-rewrite", "shadow-reject", "except", "allowed", "conflict"
    pub verdict: &'static str,
    pub reason: String,
}

/// How one judged message is carried out. Sans-I/O: the caller does what each step says and feeds the result back.
#[derive(Debug)]
pub struct Plan<'f> {
    frame: &'f [u8],
}

impl<'f> Plan<'f> {
    pub fn new(frame: &'f [u8], _rules: &'f RuleSet, _session: &Session, _now: Now) -> Self {
        Self { frame }
    }
    pub fn next(&mut self, _input: Input<'_>, _session: &mut Session) -> Step {
        let _ = self.frame;
        Step::ForwardOriginal { expects_reply: true }
    }
    /// What was said since the last call.
    pub fn take_observations(&mut self) -> Vec<Observation> {
        Vec::new()
    }
}
