//! Tests the end of a process: connections are passed on, drain, or close when they are idle.

use super::*;
use crate::proxy::connection::ConnectionOutcome;

#[tokio::test]
async fn draining_closes_idle_connections_and_waits_for_busy_ones() {
    let idle = start(64 * 1024);
    let mut monitor = start(64 * 1024);
    let awaiting = doc! {"hello": 1, "topologyVersion": {"counter": 1_i64}, "maxAwaitTimeMS": 10_000};
    monitor.client.write_all(&hello(1, 0, EXHAUST_ALLOWED, &awaiting)).await.unwrap();
    read_frame(&mut monitor.upstream).await;
    // The second connection of a monitor, which measures round trips repeatedly.
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
    timeout(SOON, measuring.connection).await.expect("a monitor's connection should end").unwrap();
    assert!(!idle.connection.is_finished(), "a monitor closes at once, other connections only after an idle time");
    for mut ends in [idle, monitor] {
        timeout(SOON, ends.connection).await.expect("an idle connection should end").unwrap();
        assert!(rest_of(&mut ends.client).await.is_empty());
    }
    let Ends { mut client, mut upstream, shutdown, connection } = start(64 * 1024);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    read_frame(&mut upstream).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert_silent(&mut client).await;
    upstream.write_all(&frame(50, 1, 0, b"y")).await.unwrap();
    assert_eq!(rest_of(&mut client).await, frame(50, 1, 0, b"y"));
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

/// A driver that has just connected is not a monitor, although it waits only for a hello.
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
async fn a_connection_to_a_dead_server_closes_immediately() {
    let Ends { mut client, mut upstream, shutdown, connection } = start(64 * 1024);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    read_frame(&mut upstream).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert_silent(&mut client).await;
    shutdown.send_replace(Closing::Now);
    assert!(rest_of(&mut client).await.is_empty());
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

/// A monitor that awaits a topology change, after the server's first reply to it.
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
async fn a_monitor_gets_one_last_reply_and_nothing_more() {
    let Ends { mut client, mut upstream, shutdown, connection } = monitor().await;
    shutdown.send_replace(Closing::Drain);
    let reply = read_frame(&mut client).await;
    let shown = doc! {"setName": "s", "me": "127.0.0.1:27018", "isWritablePrimary": false};
    assert_eq!(reply, hello(7, 50, MORE_TO_COME, &shown));
    upstream.write_all(&hello(51, 50, MORE_TO_COME, &doc! {"me": "a:1", "isWritablePrimary": true})).await.unwrap();
    assert_silent(&mut client).await;
    shutdown.send_replace(Closing::WhenIdle);
    assert!(rest_of(&mut client).await.is_empty());
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

#[tokio::test]
async fn connections_other_than_monitors_continue_while_their_member_drains() {
    let Ends { mut client, mut upstream, shutdown, .. } = start(64 * 1024);
    shutdown.send_replace(Closing::Drain);
    for id in 1..3 {
        client.write_all(&frame(id, 0, 0, b"x")).await.unwrap();
        read_frame(&mut upstream).await;
        upstream.write_all(&frame(50, id, 0, b"y")).await.unwrap();
        assert_eq!(read_frame(&mut client).await, frame(50, id, 0, b"y"));
    }
}

type Piped = Connection<DuplexStream, DuplexStream, Script>;

/// A connection whose listener asks to pass it on.
fn passing(relay: Relay<DuplexStream, DuplexStream, Script>) -> Piped {
    Connection { relay, closing: watch::channel(Closing::Pass).1, timeouts: timeouts() }
}

/// Runs the connection until it is quiescent.
async fn stop(connection: &mut Piped) {
    // Keeps the sender alive: the listener still exists.
    let (_listener, closing) = watch::channel(Closing::Pass);
    connection.closing = closing;
    assert_eq!(timeout(SOON, connection.run()).await.expect("it should stop"), ConnectionOutcome::Quiescent);
}

/// The connection as another process resumes it, from both sockets and the serialized state.
fn resumed(connection: Piped) -> Piped {
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
async fn a_resumed_relay_keeps_its_pending_replies_and_agreements() {
    let (mut client, near_client) = duplex(64 * 1024);
    let (mut upstream, near_upstream) = duplex(64 * 1024);
    let mut here = passing(relay(near_client, near_upstream, None));
    here.relay.client_state.users = Some(vec![("admin".into(), "bob".into())]);
    here.relay.client_state.own.last_number = 3;
    let asks = hello(1, 0, 0, &doc! {"hello": 1, "compression": ["zlib"], "client": {"application": {"name": "shop"}}});
    client.write_all(&asks).await.unwrap();
    stop(&mut here).await;
    read_frame(&mut upstream).await;
    // The reply to a request of the first relay arrives at the second, and so does the next request.
    let mut there = resumed(here);
    assert_eq!(there.relay.client_state.users, Some(vec![("admin".into(), "bob".into())]));
    assert_eq!((there.relay.client_state.own.last_number, there.relay.client_state.app_name()), (3, None));
    upstream.write_all(&hello(50, 1, 0, &doc! {"me": "a:1", "compression": ["zlib"], "ok": 1})).await.unwrap();
    stop(&mut there).await;
    assert_eq!(there.relay.client_state.app_name(), Some("shop"));
    let expected = doc! {"me": "127.0.0.1:27018", "compression": ["zlib"], "ok": 1};
    assert_eq!(read_frame(&mut client).await, hello(50, 1, 0, &expected));
    let mut there = resumed(there);
    assert!(there.relay.negotiation.is_agreed_with_client(Compressor::Zlib));
    client.write_all(&frame(2, 0, 0, b"x")).await.unwrap();
    stop(&mut there).await;
    assert_eq!(read_frame(&mut upstream).await, frame(2, 0, 0, b"x"));
}

#[tokio::test]
async fn a_relay_is_quiescent_only_between_messages() {
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
    let mut there = resumed(here);
    upstream.write_all(&reply[..50]).await.unwrap();
    assert!(timeout(under_way, stop(&mut there)).await.is_err(), "its reply is under way");
    upstream.write_all(&reply[50..]).await.unwrap();
    stop(&mut there).await;
    assert_eq!(read_frame(&mut client).await, reply);
}
