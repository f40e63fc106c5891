//! Streams while services are killed, and while node-api itself is upgraded.

use std::path::Path;

use polylet_e2e::programs::{cli, shown, text};
use polylet_e2e::{ok, programs};
use polylet_harness::node::SERVICES;
use polylet_harness::wait;
use polylet_harness::{Cluster, Node};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::forward::Forwarded;
use crate::kubectl::{Background, Kubectl, Protocol};

/// An exec and a forwarded port of each protocol, and a followed log.
pub(crate) struct RunningStreams {
    commands: Vec<Background>,
    connections: Vec<TcpStream>,
    _forwards: Vec<Forwarded>,
    log: Background,
    lines: u64,
}

impl RunningStreams {
    pub(crate) async fn start(cluster: &Cluster) -> Self {
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
        let log = Kubectl::new(cluster, Protocol::WebSocket).start(&["logs", "-f", "counter"]);
        Self {
            commands,
            connections,
            _forwards: forwards,
            log,
            lines: 0,
        }
    }

    /// Everything is passed on in both directions, and the log has every line once.
    pub(crate) async fn check(&mut self, word: &str) {
        for command in &mut self.commands {
            command.write(&format!("{word}\n")).await;
            assert_eq!(command.line().await, word);
        }
        for connection in &mut self.connections {
            ok(connection.write_all(word.as_bytes()).await);
            let mut echo = vec![0; word.len()];
            let read = connection.read_exact(&mut echo);
            let read = tokio::time::timeout(wait::timeout(), read).await;
            ok(read.expect("the echo in time"));
            assert_eq!(echo, word.as_bytes());
        }
        // Lines that are there, and some that are written now.
        for _ in 0..100 {
            self.lines += 1;
            assert_eq!(self.log.line().await, format!("line {}", self.lines));
        }
    }

    pub(crate) async fn end(self) {
        for command in self.commands {
            let (rest, succeeded) = command.end().await;
            assert!(succeeded && rest.is_empty(), "{rest}");
        }
    }
}

/// The streams go on while each other service is killed.
pub(crate) async fn streams_go_on(cluster: &Cluster, node: &mut Node) {
    let mut streams = RunningStreams::start(cluster).await;
    ok(node.wait_in_step().await);
    for service in SERVICES.iter().filter(|service| **service != "node-api") {
        ok(node.kill(service).await);
        streams.check(&format!("{service} was killed")).await;
        ok(node.wait_in_step().await);
    }
    streams.end().await;
}

/// The streams go on while node-api is upgraded and rolled back: each of its processes ends with the streams
/// that it carries. New ones work at once.
pub(crate) async fn streams_outlive_upgrades(cluster: &Cluster, node: &Node) {
    let new = ok(tempfile::tempdir());
    programs::build("polylet-node-api", new.path());
    let to = shown(&new.path().join("polylet-node-api"));
    let mut first = RunningStreams::start(cluster).await;
    first.check("before").await;
    let upgraded = cli(node, &["upgrade", "node-api", "--to", &to]).await;
    assert!(upgraded.status.success(), "{}", text(&upgraded));
    let mut second = RunningStreams::start(cluster).await;
    second.check("upgraded").await;
    first.check("upgraded").await;
    assert_eq!(processes(node).len(), 2);
    let back = cli(node, &["rollback", "node-api"]).await;
    assert!(back.status.success(), "{}", text(&back));
    first.check("back").await;
    second.check("back").await;
    let mut third = RunningStreams::start(cluster).await;
    third.check("back").await;
    assert_eq!(processes(node).len(), 3);
    for streams in [first, second] {
        streams.end().await;
    }
    ok(wait::until("the end of the processes before", || async {
        match processes(node).as_slice() {
            [_] => wait::Poll::Ready(()),
            others => wait::Poll::Pending(format!("{others:?}")),
        }
    })
    .await);
    third.check("alone").await;
    third.end().await;
}

/// The ids of node-api's processes: children of the supervisor with its program.
fn processes(node: &Node) -> Vec<String> {
    let supervisor = node.supervisor_pid().expect("a supervisor");
    let children = format!("/proc/{supervisor}/task/{supervisor}/children");
    let children = ok(std::fs::read_to_string(children));
    let is_node_api = |pid: &&str| {
        let arguments = std::fs::read(Path::new("/proc").join(pid).join("cmdline"));
        let arguments = arguments.unwrap_or_default();
        let program = arguments.split(|byte| *byte == 0).next();
        program.is_some_and(|program| program.ends_with(b"polylet-node-api"))
    };
    let pids = children.split_whitespace().filter(is_node_api);
    pids.map(str::to_owned).collect()
}
