//! Tests when the server of a client is dialled, and what a client sees of one that cannot be reached.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::proxy::connection::end::End;
use crate::proxy::connection::lifecycle::Dialled;
use crate::proxy::members::closing::CandidateServer;

/// A client whose server is dialled with this result; counts the times.
struct Undialled {
    client: DuplexStream,
    dialled: Arc<AtomicUsize>,
    connection: JoinHandle<()>,
    closing: watch::Sender<Closing>,
}

fn start_undialled(upstream: Result<DuplexStream, End>) -> Undialled {
    let (client, near_client) = duplex(1 << 20);
    let dialled = Arc::<AtomicUsize>::default();
    let (closing, closed) = watch::channel(Closing::Open);
    let server = CandidateServer { address: Address::parse("db:1").unwrap(), closing: closed.clone() };
    let counted = dialled.clone();
    let dialling = async move {
        counted.fetch_add(1, Ordering::SeqCst);
        upstream.map(|stream| Dialled { stream, server })
    };
    let relay = undialled(near_client, None);
    let connection = tokio::spawn(async move {
        let mut connection = Connection { relay, closing: closed, timeouts: timeouts() };
        if connection.connect(dialling).await {
            connection.run().await;
        }
    });
    Undialled { client, dialled, connection, closing }
}

#[tokio::test]
async fn the_server_is_dialled_once_the_first_message_is_complete() {
    let (mut upstream, near_upstream) = duplex(1 << 20);
    let Undialled { mut client, dialled, connection, closing: _closing } = start_undialled(Ok(near_upstream));
    let messages = [frame(1, 0, 0, b"first"), frame(2, 0, 0, b"second")];
    let (begin, end) = messages[0].split_at(18);
    for part in [&begin[..10], &begin[10..]] {
        client.write_all(part).await.unwrap();
        assert_silent(&mut upstream).await;
        assert_eq!(dialled.load(Ordering::SeqCst), 0);
    }
    client.write_all(&[end, &messages[1]].concat()).await.unwrap();
    for message in messages {
        assert_eq!(read_frame(&mut upstream).await, message);
    }
    upstream.write_all(&frame(50, 1, 0, b"x")).await.unwrap();
    assert_eq!(read_frame(&mut client).await, frame(50, 1, 0, b"x"));
    assert_eq!(dialled.load(Ordering::SeqCst), 1);
    drop(client);
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

#[tokio::test]
async fn a_client_that_sends_no_message_costs_the_server_nothing() {
    for sent in [&b""[..], &frame(1, 0, 0, b"begun")[..18]] {
        let (_upstream, near_upstream) = duplex(64);
        let Undialled { mut client, dialled, connection, closing: _closing } = start_undialled(Ok(near_upstream));
        client.write_all(sent).await.unwrap();
        assert_silent(&mut client).await;
        drop(client);
        timeout(SOON, connection).await.expect("the connection should end").unwrap();
        assert_eq!(dialled.load(Ordering::SeqCst), 0);
    }
}

#[tokio::test]
async fn a_client_without_a_server_is_disconnected_at_its_first_message() {
    let (_upstream, near_upstream) = duplex(64);
    let idle = start_undialled(Ok(near_upstream));
    idle.closing.send_replace(Closing::WhenIdle);
    timeout(SOON, idle.connection).await.expect("an undialled connection should drain").unwrap();
    assert_eq!(idle.dialled.load(Ordering::SeqCst), 0);

    let failure = Err(End::Unreachable("upstream db:1 cannot be reached: connection refused".to_owned()));
    let Undialled { mut client, connection, closing: _closing, .. } = start_undialled(failure);
    client.write_all(&frame(1, 0, 0, b"x")).await.unwrap();
    assert!(rest_of(&mut client).await.is_empty());
    timeout(SOON, connection).await.expect("the connection should end").unwrap();
}

/// TLS on a listener without it looks like the start of a long message. It is reported at once.
#[tokio::test]
async fn the_first_message_is_not_awaited_if_it_is_longer_than_drivers_send() {
    let (_upstream, near_upstream) = duplex(64);
    let Undialled { mut client, dialled, .. } = start_undialled(Ok(near_upstream));
    client.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03, 0, 0, 0, 0, 0]).await.unwrap();
    let is_dialled = async {
        while dialled.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, is_dialled).await.expect("the message should be processed");
}
