//! Tests the relay between two in-memory pipes, with an interceptor that reads its script from the message itself.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::doc;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::engine::lookup::{Lookup, LookupResult, Maximum};
use crate::engine::routing::PreferredRead;
use crate::engine::{ClientState, Input, ListenerKind, Now, QueryAdmission, RequestHead, RuleOutcome, Step, Triage};
use crate::proxy::connection::lifecycle::Connection;
use crate::proxy::connection::listener_context::Backend;
use crate::proxy::connection::timeouts::IdleTimeouts;
use crate::proxy::connection::write_buffer::{READ_LENGTH, WriteBuffer};
use crate::proxy::interceptor::Steps;
use crate::proxy::members::closing::Closing;
use crate::proxy::members::topology::{ListenerSlot, MemberAddress, Topology};
use crate::proxy::process::close_spacing::CloseSpacing;
use crate::proxy::process::connection_counts::ConnectionCounters;
use crate::proxy::process::context::{MemberContext, ProcessContext, RuleContext, TrafficContext};
use crate::proxy::process::limits::{ConnectionLimits, LimitSettings};
use crate::proxy::process::memory::Memory;
use crate::proxy::process::permits::Permits;
use crate::proxy::server_side::upstream::Address;
use crate::proxy::telemetry::meter::Meter;
use crate::proxy::telemetry::outcome_counters::OutcomeCounters;
use crate::rules::RuleSet;
use crate::service::{LookupReply, Service};
use crate::wire::compressed::CompressionMethod;
use crate::wire::op_msg::{self, EXHAUST_ALLOWED, MORE_TO_COME, Message};
use crate::wire::{Header, OpCode};

mod compressed;
mod dialling;
mod ending;
mod turns;

const LOCAL: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
/// Bound for tests without timers; a test reaches it only if the code is wrong.
const SOON: Duration = Duration::from_secs(60);

/// Content byte 0 selects the triage: `\0` (an OP_MSG body) for a hello, `j` for evaluation, anything else for
/// forwarding.
#[derive(Default)]
struct Script {
    rules: RuleSet,
}

/// Content byte 1 of an evaluated frame selects its plan.
struct ScriptedPlan<'p>(&'p [u8]);

impl Interceptor for Script {
    type Plan<'p> = ScriptedPlan<'p>;

    fn triage(&self, head: &RequestHead<'_>, _: &ListenerKind) -> Triage {
        let Some(content) = head.bytes().get(20) else { return Triage::More };
        match content {
            0 => Triage::Hello,
            b'j' => Triage::Evaluate,
            _ => Triage::Forward { expects_reply: !head.has_flags(MORE_TO_COME) },
        }
    }

    fn admit(&self, _: &[u8], _: &ListenerKind) -> QueryAdmission {
        QueryAdmission::Original
    }

    fn preferred(&self, _: &[u8], _: &ClientState) -> Option<PreferredRead> {
        None
    }

    fn plan<'p>(&'p self, frame: &'p [u8], _: Now) -> ScriptedPlan<'p> {
        ScriptedPlan(frame)
    }

    fn rules(&self) -> &RuleSet {
        &self.rules
    }
}

impl Steps for ScriptedPlan<'_> {
    fn next(&mut self, input: Input, _: &mut ClientState) -> Step {
        let request_id = Header::parse(self.0).unwrap().unwrap().request_id;
        match (input, self.0[21]) {
            (Input::Start, b'e') => Step::Exchange(frame(900, 0, 0, b"exchanged")),
            (Input::Start, b'l') => Step::Lookup(Lookup::Maximum(Box::new(Maximum {
                database: String::new(),
                collection: String::new(),
                field: String::from_utf8_lossy(&self.0[22..]).into_owned(),
            }))),
            (Input::Start, b'f') => Step::ForwardOriginal { expects_reply: true },
            (Input::Start, b'm') => Step::Forward { message: frame(request_id, 0, 0, b"other"), expects_reply: true },
            (Input::Start, b's') => Step::Silent,
            (Input::Start, b'p') => panic!("the test's plan panics"),
            (Input::Start, b'c') => Step::Close("the test closes it".into()),
            (Input::Reply(_), _) if self.0[16] == MORE_TO_COME as u8 => Step::Silent,
            (Input::Reply(reply), _) => Step::Reply(frame(901, request_id, 0, &reply[20..])),
            (Input::Found(found), _) => Step::Reply(frame(901, request_id, 0, format!("{found:?}").as_bytes())),
            _ => Step::Reply(frame(901, request_id, 0, b"local")),
        }
    }

    fn take_rest(&mut self) -> Vec<RuleOutcome> {
        Vec::new()
    }

    fn take_outcomes(&mut self) -> Vec<RuleOutcome> {
        Vec::new()
    }

    fn must_finish(&self) -> bool {
        false
    }
}

/// A service with one fixed maximum; it never answers for the field "never".
struct FixedService;

impl Service for FixedService {
    fn find(&self, lookup: Lookup) -> LookupReply {
        match lookup {
            Lookup::Maximum(maximum) if maximum.field == "never" => {
                LookupReply::Pending(Box::pin(std::future::pending()))
            }
            _ => LookupReply::Ready(Ok(LookupResult::Maximum(Some(7)))),
        }
    }
}

fn frame(request_id: i32, response_to: i32, flags: u32, content: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Header::write(&mut out, request_id, response_to, OpCode::Msg);
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(content);
    let length = out.len() as u32;
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

fn hello(request_id: i32, response_to: i32, flags: u32, body: &bson::Document) -> Vec<u8> {
    let mut writer = op_msg::MessageWriter::new(request_id, response_to, flags, 0);
    writer.body(|out| out.extend_from_slice(bson::RawDocumentBuf::try_from(body).unwrap().as_bytes()));
    writer.finish()
}

fn listener_context<P: Interceptor>(
    interceptor: P,
    compressors: Option<Arc<[CompressionMethod]>>,
) -> ListenerContext<P> {
    let member = MemberAddress { address: Address { host: "a".into(), port: 1 }, name: "a:1".into() };
    let slot = ListenerSlot { listen: "127.0.0.1:27018".parse().unwrap(), advertise: None, member: Some(member) };
    let reply = hello(7, 0, 0, &doc! {"setName": "s", "me": "a:1", "isWritablePrimary": true});
    let process = ProcessContext {
        rules: RuleContext {
            current: Arc::new(ArcSwap::from_pointee(interceptor)),
            service: Arc::new(FixedService),
            outcomes: OutcomeCounters::default(),
            permits: Permits::new(),
        },
        traffic: TrafficContext {
            meter: Meter::default(),
            connection_counters: ConnectionCounters::default(),
            open_connections: Arc::default(),
            memory: Memory::new(1 << 30),
            captures: crate::proxy::recording::Captures::default(),
            router_counters: None,
            compressors,
        },
        members: MemberContext { topology: Topology::new(vec![slot]), recheck: Arc::default() },
        close_spacing: CloseSpacing::default(),
        activity: Arc::default(),
    };
    let backend = Backend::Member { slot: 0, closing: Arc::default() };
    let context = ListenerContext::new(backend, Arc::new(process));
    context.set_last_reply(Arc::from(reply));
    context
}

impl ClientSocket for DuplexStream {
    fn has_closed_before(&self, _: usize) -> bool {
        false
    }
}

fn relay<C, U: ServerSocket>(
    client: C,
    upstream: U,
    compressors: Option<Arc<[CompressionMethod]>>,
) -> Relay<C, U, Script>
where
    C: ClientSocket,
{
    let mut relay = undialled(client, compressors);
    relay.server.stream = Some(upstream);
    relay
}

fn undialled<C, U>(client: C, compressors: Option<Arc<[CompressionMethod]>>) -> Relay<C, U, Script>
where
    C: ClientSocket,
    U: ServerSocket,
{
    Relay::new(client, None, Arc::new(listener_context(Script::default(), compressors)), LOCAL, ClientState::default())
}

fn timeouts() -> IdleTimeouts {
    let limits = Arc::new(ConnectionLimits::new(LimitSettings::default()));
    IdleTimeouts::new(limits.admit(LOCAL).unwrap(), tokio::time::Instant::now() + SOON, false)
}

/// The test's ends of a running connection; changing `shutdown` drains it.
struct Ends {
    client: DuplexStream,
    upstream: DuplexStream,
    shutdown: watch::Sender<Closing>,
    connection: JoinHandle<()>,
}

fn start(pipe: usize) -> Ends {
    start_with(pipe, None)
}

fn start_with(pipe: usize, compressors: Option<Arc<[CompressionMethod]>>) -> Ends {
    let (client, near_client) = duplex(pipe);
    let (upstream, near_upstream) = duplex(pipe);
    let (shutdown, closing) = watch::channel(Closing::Open);
    let sender = shutdown.clone();
    let connection = tokio::spawn(async move {
        let relay = relay(near_client, near_upstream, compressors);
        Connection { relay, closing, timeouts: timeouts() }.run().await;
        drop(sender);
    });
    Ends { client, upstream, shutdown, connection }
}

async fn read_frame(stream: &mut DuplexStream) -> Vec<u8> {
    let read = async {
        let mut frame = vec![0; 16];
        stream.read_exact(&mut frame).await.unwrap();
        frame.resize(Header::parse(&frame).unwrap().unwrap().length, 0);
        stream.read_exact(&mut frame[16..]).await.unwrap();
        frame
    };
    timeout(SOON, read).await.expect("a frame should come")
}

async fn rest_of(stream: &mut DuplexStream) -> Vec<u8> {
    let mut rest = Vec::new();
    timeout(SOON, stream.read_to_end(&mut rest)).await.expect("the stream should end").unwrap();
    rest
}

/// Asserts that nothing arrives, although everything that can run has run.
async fn assert_silent(stream: &mut DuplexStream) {
    let byte = timeout(Duration::from_millis(30), stream.read_u8()).await;
    assert!(byte.is_err(), "nothing should come, {byte:?} did");
}

#[tokio::test]
async fn messages_cut_anywhere_arrive_whole_and_in_order() {
    let body = doc! {"hello": 1, "compression": ["lz4", "zlib"], "$db": "admin"};
    let requests = [
        frame(1, 0, 0, b"first"),
        hello(2, 0, 0, &body),
        frame(3, 0, 0, b"jm"),
        frame(4, 0, 0, b"jr"),
        frame(5, 0, 0, b"last"),
    ];
    let upstream_sees = [
        frame(1, 0, 0, b"first"),
        hello(2, 0, 0, &doc! {"hello": 1, "compression": ["zlib"], "$db": "admin"}),
        frame(3, 0, 0, b"other"),
        frame(5, 0, 0, b"last"),
    ];
    let reply = doc! {"hosts": ["db:5"], "me": "db:5", "primary": "c:1"};
    let replies = [frame(51, 1, 0, b"x"), hello(52, 2, 0, &reply), frame(53, 3, 0, b"y"), frame(55, 5, 0, b"z")];
    let shown = doc! {"hosts": ["127.0.0.1:27018"], "me": "127.0.0.1:27018"};
    let client_sees = [
        frame(51, 1, 0, b"x"),
        hello(52, 2, 0, &shown),
        frame(53, 3, 0, b"y"),
        frame(901, 4, 0, b"local"),
        frame(55, 5, 0, b"z"),
    ];
    let stream = requests.concat();
    for cut in 0..=stream.len() {
        let Ends { mut client, mut upstream, .. } = start(64 * 1024);
        client.write_all(&stream[..cut]).await.unwrap();
        tokio::task::yield_now().await;
        client.write_all(&stream[cut..]).await.unwrap();
        for (expected, reply) in upstream_sees.iter().zip(&replies) {
            assert_eq!(&read_frame(&mut upstream).await, expected, "cut at {cut}");
            let cut = cut.min(reply.len());
            upstream.write_all(&reply[..cut]).await.unwrap();
            tokio::task::yield_now().await;
            upstream.write_all(&reply[cut..]).await.unwrap();
        }
        for expected in &client_sees {
            assert_eq!(&read_frame(&mut client).await, expected, "cut at {cut}");
        }
    }
}

#[tokio::test]
async fn an_evaluated_message_waits_for_all_pending_replies() {
    let Ends { mut client, mut upstream, .. } = start(64 * 1024);
    let requests = [frame(1, 0, 0, b"a"), frame(2, 0, 0, b"jr"), frame(3, 0, 0, b"b"), frame(4, 0, 0, b"jr")];
    client.write_all(&requests.concat()).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, requests[0]);
    assert_silent(&mut upstream).await;
    let more = frame(50, 1, MORE_TO_COME, b"part");
    upstream.write_all(&more).await.unwrap();
    assert_eq!(read_frame(&mut client).await, more);
    assert_silent(&mut client).await;
    let last = frame(51, 50, 0, &[b'x'; 5000]);
    upstream.write_all(&last[..3000]).await.unwrap();
    upstream.write_all(&last[3000..]).await.unwrap();
    assert_eq!(read_frame(&mut client).await, last);
    assert_eq!(read_frame(&mut client).await, frame(901, 2, 0, b"local"));
    assert_eq!(read_frame(&mut upstream).await, requests[2]);
    upstream.write_all(&frame(52, 3, 0, b"y")).await.unwrap();
    assert_eq!(read_frame(&mut client).await, frame(52, 3, 0, b"y"));
    assert_eq!(read_frame(&mut client).await, frame(901, 4, 0, b"local"));
}

#[tokio::test]
async fn plans_are_carried_out_step_by_step() {
    let Ends { mut client, mut upstream, .. } = start(100);
    let large = frame(1, 0, 0, &[&b"je"[..], &[b'x'; 300_000]].concat());
    client.write_all(&large).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, frame(900, 0, 0, b"exchanged"));
    let body = vec![b'y'; 300_000];
    let reply = frame(50, 900, 0, &body);
    let (_, seen) = tokio::join!(async { upstream.write_all(&reply).await.unwrap() }, read_frame(&mut client));
    assert_eq!(seen, frame(901, 1, 0, &body));
    client.write_all(&frame(2, 0, 0, b"jlknown")).await.unwrap();
    assert_eq!(read_frame(&mut client).await, frame(901, 2, 0, b"Ok(Maximum(Some(7)))"));
    client.write_all(&frame(3, 0, 0, b"jf")).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, frame(3, 0, 0, b"jf"));
    upstream.write_all(&frame(51, 3, 0, b"z")).await.unwrap();
    assert_eq!(read_frame(&mut client).await, frame(51, 3, 0, b"z"));
    client.write_all(&[frame(4, 0, MORE_TO_COME, b"js"), frame(5, 0, 0, b"jc")].concat()).await.unwrap();
    assert!(rest_of(&mut client).await.is_empty() && rest_of(&mut upstream).await.is_empty());
}

#[tokio::test]
async fn a_streamed_hello_is_rewritten_frame_by_frame() {
    let Ends { mut client, mut upstream, .. } = start(64 * 1024);
    let request = hello(1, 0, EXHAUST_ALLOWED, &doc! {"hello": 1, "maxAwaitTimeMS": 10_000, "$db": "admin"});
    client.write_all(&request).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, request);
    for (request_id, response_to, flags) in [(50, 1, MORE_TO_COME), (51, 50, MORE_TO_COME), (52, 51, 0)] {
        let reply = hello(request_id, response_to, flags, &doc! {"hosts": ["a:1", "b:1"], "me": "a:1"});
        upstream.write_all(&reply).await.unwrap();
        let seen = read_frame(&mut client).await;
        let seen = Message::parse(&seen).unwrap();
        assert_eq!((seen.header.request_id, seen.header.response_to, seen.flags), (request_id, response_to, flags));
        let body: bson::Document = bson::RawDocument::from_bytes(seen.body).unwrap().try_into().unwrap();
        assert_eq!(body, doc! {"hosts": ["127.0.0.1:27018"], "me": "127.0.0.1:27018"});
    }
    client.write_all(&frame(2, 0, 0, b"after")).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, frame(2, 0, 0, b"after"));
}

#[tokio::test]
async fn neither_direction_waits_for_the_other() {
    const COUNT: i32 = 300;
    let Ends { mut client, upstream, .. } = start(1024);
    // Each reply is ten times its request, and the server reads nothing while it writes, as mongod does.
    let (mut from_client, mut to_client) = tokio::io::split(upstream);
    let server = tokio::spawn(async move {
        for request_id in 1..=COUNT {
            let mut request = vec![0; 20 + 2000];
            from_client.read_exact(&mut request).await.unwrap();
            to_client.write_all(&frame(request_id, request_id, 0, &[b'y'; 20_000])).await.unwrap();
        }
    });
    let (mut replies, mut requests) = tokio::io::split(&mut client);
    let pipelining = async {
        for request_id in 1..=COUNT {
            requests.write_all(&frame(request_id, 0, 0, &[b'x'; 2000])).await.unwrap();
        }
    };
    let reading = async {
        // Starts only after all buffers have filled up.
        tokio::time::sleep(Duration::from_millis(100)).await;
        for request_id in 1..=COUNT {
            let mut reply = vec![0; 20 + 20_000];
            replies.read_exact(&mut reply).await.unwrap();
            assert_eq!(Header::parse(&reply).unwrap().unwrap().response_to, request_id);
        }
    };
    timeout(SOON, async { tokio::join!(pipelining, reading) }).await.expect("no deadlock");
    server.await.unwrap();
}

#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_either() {
    let Ends { mut client, mut upstream, .. } = start(1024);
    let server = tokio::spawn(async move {
        let mut request = vec![0; 1000];
        while upstream.read_exact(&mut request).await.is_ok() {
            upstream.write_all(&frame(2, 1, 0, &[b'y'; 980])).await.unwrap();
        }
    });
    let request = frame(1, 0, 0, &[b'x'; 980]);
    let mut taken = 0;
    while timeout(Duration::from_millis(50), client.write_all(&request)).await.is_ok() {
        taken += request.len();
        assert!(taken < 4 * READ_LENGTH, "{taken} bytes were taken in");
    }
    server.abort();
}

#[tokio::test]
async fn the_clients_first_message_is_reported_once() {
    let (mut client, near_client) = duplex(64 * 1024);
    let (_upstream, near_upstream) = duplex(64 * 1024);
    let mut relay = relay(near_client, near_upstream, None);
    let request = frame(1, 0, 0, b"x");
    for (bytes, reported) in [(&request[..9], false), (&request[9..], true), (&request[..], false)] {
        client.write_all(bytes).await.unwrap();
        let event = timeout(Duration::ZERO, std::future::poll_fn(|cx| relay.poll(cx))).await;
        assert_eq!(matches!(event, Ok(Event::Established)), reported);
    }
}

/// Whether the relay keeps waiting.
async fn poll(relay: &mut Relay<DuplexStream, DuplexStream, Script>) -> bool {
    let event = timeout(Duration::ZERO, std::future::poll_fn(|cx| relay.poll(cx))).await;
    matches!(event, Err(_) | Ok(Event::Established))
}

#[tokio::test]
async fn memory_is_released_when_the_reply_is_sent_even_if_the_client_is_idle() {
    let (_client, near_client) = duplex(64 * 1024);
    let (_upstream, near_upstream) = duplex(64 * 1024);
    let mut relay = relay(near_client, near_upstream, None);
    relay.kept = Some(crate::proxy::process::memory::Reservation::new(&relay.listener_context.process.traffic.memory));
    relay.client.out.push(hello(2, 1, 0, &doc! {"ok": 1}));
    assert!(poll(&mut relay).await && relay.kept.is_none());
}

#[tokio::test]
async fn an_idle_relay_keeps_no_buffers() {
    let (mut client, near_client) = duplex(64 * 1024);
    let (mut upstream, near_upstream) = duplex(64 * 1024);
    let mut relay = relay(near_client, near_upstream, None);
    for request in [hello(1, 0, 0, &doc! {"hello": 1}), frame(1, 0, 0, &[b'x'; 1000])] {
        for piece in request.chunks(7) {
            client.write_all(piece).await.unwrap();
            assert!(poll(&mut relay).await);
        }
        read_frame(&mut upstream).await;
        let reply = hello(2, 1, 0, &doc! {"hosts": ["a:1"]});
        for piece in reply.chunks(7) {
            upstream.write_all(piece).await.unwrap();
            assert!(poll(&mut relay).await);
        }
        read_frame(&mut client).await;
        assert!(relay.is_idle());
        assert!(relay.client.unread.is_none() && relay.kept.is_none());
        assert_eq!(format!("{:?}", relay.client.out), format!("{:?}", WriteBuffer::default()));
    }
}

#[tokio::test]
async fn a_client_that_closes_is_noticed_while_its_message_is_evaluated() {
    for evaluated in [&b"jlnever"[..], b"je"] {
        let Ends { mut client, mut upstream, connection, .. } = start(64 * 1024);
        client.write_all(&frame(1, 0, 0, evaluated)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
        drop(client);
        rest_of(&mut upstream).await;
        timeout(SOON, connection).await.expect("the connection should end").unwrap();
    }
}

#[tokio::test]
async fn unacknowledged_messages_are_processed_after_the_client_has_closed() {
    let Ends { mut client, mut upstream, .. } = start(64 * 1024);
    let requests =
        [frame(1, 0, MORE_TO_COME, b"je"), frame(2, 0, MORE_TO_COME, b"js"), frame(3, 0, MORE_TO_COME, b"x")];
    client.write_all(&requests.concat()).await.unwrap();
    drop(client);
    assert_eq!(read_frame(&mut upstream).await, frame(900, 0, 0, b"exchanged"));
    upstream.write_all(&frame(50, 900, 0, b"y")).await.unwrap();
    assert_eq!(rest_of(&mut upstream).await, requests[2]);
}

#[tokio::test]
async fn a_client_that_closes_its_sending_half_gets_its_replies() {
    let Ends { mut client, mut upstream, .. } = start(64 * 1024);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    client.shutdown().await.unwrap();
    read_frame(&mut upstream).await;
    assert_eq!(timeout(SOON, upstream.read(&mut [0; 1])).await.unwrap().unwrap(), 0);
    upstream.write_all(&frame(50, 1, 0, b"y")).await.unwrap();
    assert_eq!(rest_of(&mut client).await, frame(50, 1, 0, b"y"));
}

#[tokio::test]
async fn when_the_upstream_closes_the_client_gets_the_received_bytes_and_then_the_end() {
    let Ends { mut client, mut upstream, connection, .. } = start(256);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    read_frame(&mut upstream).await;
    let reply = frame(50, 1, 0, &[b'y'; 1000]);
    let (_, seen) = tokio::join!(
        async move {
            upstream.write_all(&reply[..500]).await.unwrap();
        },
        rest_of(&mut client)
    );
    assert_eq!(seen.len(), 500);
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

#[tokio::test]
async fn an_invalid_stream_closes_after_its_valid_messages() {
    let Ends { mut client, mut upstream, .. } = start(64 * 1024);
    let fine = frame(1, 0, MORE_TO_COME, b"x");
    let mut bad = frame(2, 0, 0, b"x");
    bad[..4].copy_from_slice(&i32::MAX.to_le_bytes());
    client.write_all(&[fine.clone(), bad].concat()).await.unwrap();
    assert_eq!(rest_of(&mut upstream).await, fine);
    assert!(rest_of(&mut client).await.is_empty());
    for reply in [frame(50, 1, 0, b"unasked"), frame(51, 0, 0, &[])] {
        let Ends { mut client, mut upstream, .. } = start(64 * 1024);
        upstream.write_all(&reply).await.unwrap();
        assert!(rest_of(&mut client).await.is_empty());
    }
}
