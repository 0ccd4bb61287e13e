//! The end of a process: sessions are passed on, drain, or close when they are idle.

use super::*;
use crate::proxy::connection::ConnectionOutcome;

#[tokio::test]
async fn draining_closes_who_is_idle_and_waits_for_who_is_not() {
    let idle = start(64 * 1024);
    let mut monitor = start(64 * 1024);
    let awaiting = doc! {"hello": 1, "topologyVersion": {"counter": 1_i64}, "maxAwaitTimeMS": 10_000};
    monitor.client.write_all(&hello(1, 0, EXHAUST_ALLOWED, &awaiting)).await.unwrap();
    read_frame(&mut monitor.upstream).await;
    // The second connection of a monitor, which measures round trips again and again.
    let mut measuring = start(64 * 1024);
    for id in 1..3 {
        measuring.client.write_all(&hello(id, 0, 0, &doc! {"hello": 1})).await.unwrap();
        read_frame(&mut measuring.upstream).await;
        measuring.upstream.write_all(&hello(50 + id, id, 0, &doc! {"ok": 1})).await.unwrap();
        read_frame(&mut measuring.client).await;
    }
    for ends in [&measuring, &idle, &monitor] {
        ends.shutdown.send_replace(Closing::WhenIdle);
    }
    timeout(SOON, measuring.session).await.expect("a monitor's session should end").unwrap();
    assert!(!idle.session.is_finished(), "before its next hello: at once, and not when it has been quiet for a while");
    for mut ends in [idle, monitor] {
        timeout(SOON, ends.session).await.expect("an idle session should end").unwrap();
        assert!(rest_of(&mut ends.client).await.is_empty());
    }
    let Ends { mut client, mut upstream, shutdown, session } = start(64 * 1024);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    read_frame(&mut upstream).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert_silent(&mut client).await;
    upstream.write_all(&frame(50, 1, 0, b"y")).await.unwrap();
    assert_eq!(rest_of(&mut client).await, frame(50, 1, 0, b"y"));
    timeout(SOON, session).await.expect("the session should end").unwrap();
}

/// A driver that has just connected is no monitor, though all it waits for is a hello.
#[tokio::test]
async fn draining_lets_a_handshake_finish() {
    let Ends { mut client, mut upstream, shutdown, .. } = start(64 * 1024);
    client.write_all(&hello(1, 0, 0, &doc! {"hello": 1})).await.unwrap();
    read_frame(&mut upstream).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert!(timeout(Duration::from_secs(2), client.read_u8()).await.is_err());
    upstream.write_all(&hello(50, 1, 0, &doc! {"ok": 1})).await.unwrap();
    read_frame(&mut client).await;
    client.write_all(&frame(2, 0, 0, b"x")).await.unwrap();
    assert_eq!(read_frame(&mut upstream).await, frame(2, 0, 0, b"x"));
}

#[tokio::test]
async fn who_waits_for_a_server_that_will_not_answer_is_not_kept_waiting() {
    let Ends { mut client, mut upstream, shutdown, session } = start(64 * 1024);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    read_frame(&mut upstream).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert_silent(&mut client).await;
    shutdown.send_replace(Closing::Now);
    assert!(rest_of(&mut client).await.is_empty());
    timeout(SOON, session).await.expect("the session should end").unwrap();
}

/// A monitor that awaits news, after the server's first answer to it.
async fn monitor() -> Ends {
    let mut ends = start(64 * 1024);
    let awaiting = doc! {"hello": 1, "topologyVersion": {"counter": 1_i64}, "maxAwaitTimeMS": 10_000};
    ends.client.write_all(&hello(1, 0, EXHAUST_ALLOWED, &awaiting)).await.unwrap();
    read_frame(&mut ends.upstream).await;
    ends.upstream.write_all(&hello(50, 1, MORE_TO_COME, &doc! {"me": "a:1"})).await.unwrap();
    read_frame(&mut ends.client).await;
    ends
}

#[tokio::test]
async fn a_monitor_hears_one_last_word_and_nothing_more() {
    let Ends { mut client, mut upstream, shutdown, session } = monitor().await;
    shutdown.send_replace(Closing::Retire);
    let word = read_frame(&mut client).await;
    let shown = doc! {"setName": "s", "me": "127.0.0.1:27018", "isWritablePrimary": false};
    assert_eq!(word, hello(7, 50, MORE_TO_COME, &shown));
    upstream.write_all(&hello(51, 50, MORE_TO_COME, &doc! {"me": "a:1", "isWritablePrimary": true})).await.unwrap();
    assert_silent(&mut client).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert!(rest_of(&mut client).await.is_empty());
    timeout(SOON, session).await.expect("the session should end").unwrap();
}

#[tokio::test]
async fn whoever_is_no_monitor_goes_on_when_its_member_retires() {
    let Ends { mut client, mut upstream, shutdown, .. } = start(64 * 1024);
    shutdown.send_replace(Closing::Retire);
    for id in 1..3 {
        client.write_all(&frame(id, 0, 0, b"x")).await.unwrap();
        read_frame(&mut upstream).await;
        upstream.write_all(&frame(50, id, 0, b"y")).await.unwrap();
        assert_eq!(read_frame(&mut client).await, frame(50, id, 0, b"y"));
    }
}

type Piped = Connection<DuplexStream, DuplexStream, Script>;

/// A connection whose listener wants it to be passed on.
fn passing(relay: Relay<DuplexStream, DuplexStream, Script>) -> Piped {
    Connection { relay, closing: watch::channel(Closing::Pass).1, timeouts: timeouts() }
}

/// Runs it until it stands.
async fn stop(connection: &mut Piped) {
    // The listener is still there.
    let (_listener, closing) = watch::channel(Closing::Pass);
    connection.closing = closing;
    assert_eq!(timeout(SOON, connection.run()).await.expect("it should stand"), ConnectionOutcome::Quiescent);
}

/// As if another process had got both sockets, and what the relay knew as it is written down.
fn elsewhere(connection: Piped) -> Piped {
    let (client, upstream, quiescent) = connection.relay.into_quiescent();
    let written = serde_json::to_vec(&quiescent).unwrap();
    passing(Relay::resume(
        client,
        upstream,
        Arc::new(listener_context(None)),
        LOCAL,
        serde_json::from_slice(&written).unwrap(),
    ))
}

#[tokio::test]
async fn a_relay_goes_on_elsewhere_with_what_is_owed_and_agreed() {
    let (mut client, near_client) = duplex(64 * 1024);
    let (mut upstream, near_upstream) = duplex(64 * 1024);
    let mut here = passing(relay(near_client, near_upstream, None));
    here.relay.session.users = Some(vec![("admin".into(), "bob".into())]);
    here.relay.session.own.last_number = 3;
    let asks = hello(1, 0, 0, &doc! {"hello": 1, "compression": ["zlib"], "client": {"application": {"name": "shop"}}});
    client.write_all(&asks).await.unwrap();
    stop(&mut here).await;
    read_frame(&mut upstream).await;
    // The answer to what was asked there comes here, and the next request.
    let mut there = elsewhere(here);
    assert_eq!(there.relay.session.users, Some(vec![("admin".into(), "bob".into())]));
    assert_eq!((there.relay.session.own.last_number, there.relay.session.app_name()), (3, None));
    upstream.write_all(&hello(50, 1, 0, &doc! {"me": "a:1", "compression": ["zlib"], "ok": 1})).await.unwrap();
    stop(&mut there).await;
    assert_eq!(there.relay.session.app_name(), Some("shop"));
    let told = doc! {"me": "127.0.0.1:27018", "compression": ["zlib"], "ok": 1};
    assert_eq!(read_frame(&mut client).await, hello(50, 1, 0, &told));
    let mut there = elsewhere(there);
    assert!(there.relay.negotiation.is_agreed_with_client(Compressor::Zlib));
    client.write_all(&frame(2, 0, 0, b"x")).await.unwrap();
    stop(&mut there).await;
    assert_eq!(read_frame(&mut upstream).await, frame(2, 0, 0, b"x"));
}

#[tokio::test]
async fn a_relay_stands_only_between_messages() {
    let (request, reply) = (frame(1, 0, 0, &[b'x'; 100]), frame(50, 1, 0, &[b'y'; 100]));
    let (mut client, near_client) = duplex(64 * 1024);
    let (mut upstream, near_upstream) = duplex(64 * 1024);
    let mut here = passing(relay(near_client, near_upstream, None));
    client.write_all(&request[..50]).await.unwrap();
    let under_way = Duration::from_millis(50);
    assert!(timeout(under_way, stop(&mut here)).await.is_err(), "a request is under way");
    client.write_all(&request[50..]).await.unwrap();
    stop(&mut here).await;
    assert_eq!(read_frame(&mut upstream).await, request);
    let mut there = elsewhere(here);
    upstream.write_all(&reply[..50]).await.unwrap();
    assert!(timeout(under_way, stop(&mut there)).await.is_err(), "its reply is under way");
    upstream.write_all(&reply[50..]).await.unwrap();
    stop(&mut there).await;
    assert_eq!(read_frame(&mut client).await, reply);
}
