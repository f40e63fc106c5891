//! A real OpenTelemetry collector receives what the node exports, over gRPC and over HTTP, and reads exported files.
//! What it has understood it sends on to the test.

use std::collections::BTreeSet;
use std::process::Stdio;

use polylet_e2e::collector::Collector;
use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, node_with, ok, pod};
use polylet_harness::docker::ObservabilityPrograms;
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, machine};
use polylet_wire::supervisor::v1::GetTraceResponse;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// The collector, which ends with the test.
struct RealCollector {
    grpc_port: u16,
    http_port: u16,
    _process: Child,
    _config: tempfile::NamedTempFile,
}

impl RealCollector {
    /// Sends what it receives to `next`.
    async fn start(next: &Collector) -> RealCollector {
        let say = |line: &str| eprintln!("{line}");
        let program = ok(ObservabilityPrograms::collector(&say).await);
        let (grpc_port, http_port) = (ok(machine::free_port()), ok(machine::free_port()));
        let endpoint = |port: u16| json!({ "endpoint": format!("127.0.0.1:{port}") });
        // YAML is a superset of JSON.
        let text = json!({
            "receivers": { "otlp": { "protocols": { "grpc": endpoint(grpc_port), "http": endpoint(http_port) } } },
            "exporters": { "otlp": {
                "endpoint": next.endpoint().trim_start_matches("http://"), "tls": { "insecure": true },
                "compression": "none",
            } },
            "service": {
                "pipelines": { "traces": { "receivers": ["otlp"], "exporters": ["otlp"] } },
                "telemetry": { "metrics": { "level": "none" } },
            },
        });
        let config = ok(tempfile::NamedTempFile::new());
        ok(std::fs::write(config.path(), text.to_string()));
        let mut command = Command::new(program);
        command.arg("--config").arg(config.path());
        command.stdin(Stdio::null()).kill_on_drop(true);
        let process = ok(command.spawn());
        let poll = || async {
            match TcpStream::connect(("127.0.0.1", http_port)).await {
                Ok(_) => Poll::Ready(()),
                Err(error) => Poll::Pending(error.to_string()),
            }
        };
        ok(until("the collector to listen", poll).await);
        RealCollector {
            grpc_port,
            http_port,
            _process: process,
            _config: config,
        }
    }

    /// Posts a line of OTLP's JSON; the head of the answer.
    async fn post(&self, line: &[u8]) -> String {
        let mut stream = ok(TcpStream::connect(("127.0.0.1", self.http_port)).await);
        let head = format!(
            "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            line.len()
        );
        ok(stream.write_all(head.as_bytes()).await);
        ok(stream.write_all(line).await);
        let mut answer = String::new();
        ok(stream.read_to_string(&mut answer).await);
        answer
    }
}

#[tokio::test]
#[ignore = "needs root, a container runtime, built services and Go: cargo verify"]
async fn a_real_collector_reads_exports_and_files() {
    let sink = Collector::start().await;
    let collector = RealCollector::start(&sink).await;
    let mut steps = Steps::new();
    for (protocol, port) in [
        ("grpc", collector.grpc_port),
        ("http/protobuf", collector.http_port),
    ] {
        let exported = async {
            let variables = [
                (
                    "OTEL_EXPORTER_OTLP_ENDPOINT",
                    format!("http://127.0.0.1:{port}"),
                ),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
            ];
            let node = node(&variables).await;
            let trace = ended_trace(&node).await;
            wait_received(&sink, &trace).await;
            ok(node.remove());
        };
        steps.run(&format!("export by {protocol}"), exported).await;
    }
    let exported_file = async {
        let node = node(&[]).await;
        let trace = ended_trace(&node).await;
        assert!(sink.spans_of(&trace.trace_id).is_empty());
        let exported = ok(node
            .cli(&["trace", "export", "otlp-json", "web-node"])
            .await);
        let lines = exported.stdout.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            let answer = collector.post(line).await;
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        wait_received(&sink, &trace).await;
        ok(node.remove());
    };
    steps.run("a file of OTLP's JSON", exported_file).await;
    steps.finish();
}

async fn node(variables: &[(&str, String)]) -> Node {
    let variables = variables.iter();
    node_with(NodeOptions {
        env: variables
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
        ..NodeOptions::default()
    })
    .await
}

/// The trace of a pod's start, once it has ended.
async fn ended_trace(node: &Node) -> GetTraceResponse {
    ok(node.put("web.yaml", &pod("web", RUNS, &Value::Null)));
    let poll = || async {
        let listed = ok(node.cli(&["trace", "list", "--outcome", "ready"]).await);
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        match listed.contains("web-node") {
            true => Poll::Ready(()),
            false => Poll::Pending(listed),
        }
    };
    ok(until("the end of the start's trace", poll).await);
    ok(node.trace("default/web-node").await)
}

/// Waits until the collector has sent on all spans of a trace, its root included.
async fn wait_received(sink: &Collector, trace: &GetTraceResponse) {
    let ids = trace.spans.iter().map(|span| span.span_id.clone());
    let ids: BTreeSet<String> = ids.collect();
    assert!(ids.len() > 10, "{ids:?}");
    let poll = || async {
        let received = sink.spans_of(&trace.trace_id);
        let missing: Vec<_> = ids.difference(&received).collect();
        match missing.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending(format!("without {missing:?}")),
        }
    };
    ok(until("all spans from the collector", poll).await);
}
