//! Tests the end of a process: connections drain, or close when they are idle.

use super::*;

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

#[tokio::test]
async fn a_panic_ends_its_connection_and_is_counted() {
    let (mut client, near_client) = duplex(1024);
    let (mut upstream, near_upstream) = duplex(1024);
    let relay = relay(near_client, near_upstream, None);
    let process = relay.listener_context.process.clone();
    let (_shutdown, closing) = watch::channel(Closing::Open);
    client.write_all(&frame(1, 0, 0, b"jp")).await.unwrap();
    Connection { relay, closing, timeouts: timeouts() }.run().await;
    assert!(rest_of(&mut client).await.is_empty() && rest_of(&mut upstream).await.is_empty());
    let ended = process.traffic.connection_counters.counts().ended;
    assert!(ended.contains(&("unprocessable", 1)), "{ended:?}");
}

#[tokio::test]
async fn after_the_drain_of_another_process_only_its_monitors_close() {
    let mut watching = monitor().await;
    watching.shutdown.send_replace(Closing::Drain);
    read_frame(&mut watching.client).await;
    watching.shutdown.send_replace(Closing::Open);
    assert!(rest_of(&mut watching.client).await.is_empty());
    let Ends { mut client, mut upstream, shutdown, connection } = start(64 * 1024);
    for (id, state) in (1..).zip([Closing::Drain, Closing::Open, Closing::Drain, Closing::Open, Closing::WhenIdle]) {
        shutdown.send_replace(state);
        client.write_all(&frame(id, 0, 0, b"x")).await.unwrap();
        read_frame(&mut upstream).await;
        upstream.write_all(&frame(50, id, 0, b"y")).await.unwrap();
        assert_eq!(read_frame(&mut client).await, frame(50, id, 0, b"y"));
    }
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
