//! Streams while services are killed.

use polylet_e2e::ok;
use polylet_harness::node::SERVICES;
use polylet_harness::wait;
use polylet_harness::{Cluster, Node};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::forward::Forwarded;
use crate::kubectl::{Background, Kubectl, Protocol};

/// An exec and a forwarded port of each protocol, and a followed log, go on while each other service is
/// killed. The log has every line once.
pub(crate) async fn streams_go_on(cluster: &Cluster, node: &mut Node) {
    let mut commands = Vec::new();
    let mut connections = Vec::new();
    let mut forwards = Vec::new();
    for protocol in [Protocol::WebSocket, Protocol::Spdy] {
        let kubectl = Kubectl::new(cluster, protocol);
        commands.push(kubectl.start(&["exec", "-i", "server", "--", "cat"]));
        let forwarded = Forwarded::start(&kubectl, 9000).await;
        connections.push(forwarded.connect().await);
        forwards.push(forwarded);
    }
    let mut log = Kubectl::new(cluster, Protocol::WebSocket).start(&["logs", "-f", "counter"]);
    let mut lines = 0;
    ok(node.wait_in_step().await);
    for service in SERVICES.iter().filter(|service| **service != "node-api") {
        ok(node.kill(service).await);
        for command in &mut commands {
            command.write(&format!("{service} was killed\n")).await;
            assert_eq!(command.line().await, format!("{service} was killed"));
        }
        for connection in &mut connections {
            ok(connection.write_all(service.as_bytes()).await);
            let mut echo = vec![0; service.len()];
            let read = connection.read_exact(&mut echo);
            let read = tokio::time::timeout(wait::timeout(), read).await;
            ok(read.expect("the echo in time"));
            assert_eq!(echo, service.as_bytes());
        }
        ok(node.wait_in_step().await);
        follow(&mut log, &mut lines).await;
    }
    for command in commands {
        let (rest, succeeded) = command.end().await;
        assert!(succeeded && rest.is_empty(), "{rest}");
    }
    drop(forwards);
}

/// Reads the lines of the log that are there, and some that are written now: none is missing or repeated.
async fn follow(log: &mut Background, lines: &mut u64) {
    for _ in 0..100 {
        *lines += 1;
        assert_eq!(log.line().await, format!("line {lines}"));
    }
}
