//! The supervisor with fake services: real processes, sockets and signals.

mod fixture;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::Value;

use fixture::{Node, POLYLET, SERVICES, TIMEOUT, alive, kill};

#[test]
fn services_start_and_stop_in_order() {
    let mut node = Node::started();
    for service in node.status() {
        assert!(service["pid"].as_u64().unwrap() > 0, "{service}");
        assert!(service["memoryBytes"].as_u64().unwrap() > 0, "{service}");
        assert_eq!(service["restarts"], 0, "{service}\n{}", node.log());
    }
    for service in SERVICES {
        let socket = node.path(&format!("run/{service}.sock"));
        assert_eq!(
            fs::metadata(socket).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
    let text = String::from_utf8(node.run(&["status"]).stdout).unwrap();
    assert!(text.starts_with("Node: n1\n\nSERVICE"), "{text}");
    // The node, an empty line, the header, and the supervisor.
    assert_eq!(text.lines().count(), SERVICES.len() + 4, "{text}");
    node.until("the ready message", || {
        node.log().contains("all services are serving")
    });

    let second = node.run(&["run"]);
    assert_eq!(second.status.code(), Some(75));
    let stderr = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        stderr.contains("supervisor.lock is held by process"),
        "{stderr}"
    );

    let pids: Vec<u64> = node
        .status()
        .iter()
        .filter_map(|s| s["pid"].as_u64())
        .collect();
    assert_eq!(
        node.signal(rustix::process::Signal::TERM).code(),
        Some(0),
        "{}",
        node.log()
    );
    assert!(pids.iter().all(|pid| !alive(*pid)));
    for service in SERVICES {
        assert!(
            node.path(&format!("run/{service}/drained")).exists(),
            "{service} was not drained"
        );
    }
    let log = node.log();
    let exited = |name| log.find(&format!("service exited service={name}")).unwrap();
    assert!(exited("node-api") < exited("sync-coordinator"), "{log}");
    assert!(exited("sync-coordinator") < exited("pleg"), "{log}");
}

#[test]
fn status_names_the_node_that_the_flags_name() {
    let mut node = Node::prepared();
    node.start_with_args(&["run", "--hostname-override", "Edge-7"]);
    node.until_serving();
    let text = String::from_utf8(node.run(&["status"]).stdout).unwrap();
    assert!(text.starts_with("Node: edge-7\n"), "{text}");
    let json: Value = serde_json::from_slice(&node.run(&["status", "-o", "json"]).stdout).unwrap();
    assert_eq!(json["node"], "edge-7");
}

#[test]
fn killed_service_is_restarted_with_the_same_socket() {
    let node = Node::started();
    let socket = fs::metadata(node.path("run/pleg.sock")).unwrap();
    for restarts in 1..=3 {
        let before = node.service("pleg")["pid"].as_u64().unwrap();
        kill(before, rustix::process::Signal::KILL);
        node.until("the restart", || {
            let now = node.service("pleg");
            now["health"] == "SERVING" && now["pid"] != before && now["restarts"] == restarts
        });
        assert_eq!(node.service("pleg")["lastExit"], "killed by signal 9");
    }
    use std::os::unix::fs::MetadataExt;
    assert_eq!(
        fs::metadata(node.path("run/pleg.sock")).unwrap().ino(),
        socket.ino()
    );
    assert!(
        node.log()
            .contains("service exited; restarting service=pleg"),
        "{}",
        node.log()
    );
    assert!(node.log().contains("retry_in=100ms"), "{}", node.log());
    assert!(
        node.status()
            .iter()
            .all(|s| s["service"] == "pleg" || s["restarts"] == 0)
    );
}

#[test]
fn services_are_killed_with_the_supervisor() {
    let mut node = Node::started();
    let pids: Vec<u64> = node
        .status()
        .iter()
        .filter_map(|s| s["pid"].as_u64())
        .collect();
    node.signal(rustix::process::Signal::KILL);
    node.until("the exit of all services", || {
        pids.iter().all(|pid| !alive(*pid))
    });
    let gone = node.run(&["status"]);
    assert_eq!(gone.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("Polylet is not running in"));
    node.start();
    node.until_serving();
}

#[test]
fn spans_are_recorded_and_shown() {
    let node = Node::started();
    node.until("the trace", || {
        node.run(&["trace", "default/demo"]).status.success()
    });
    let text = String::from_utf8(node.run(&["trace", "demo"]).stdout).unwrap();
    assert!(text.contains("fake_service.start result=n1"), "{text}");
    // The step, below the root that the supervisor derives.
    assert!(
        text.contains("2 spans in 2 services, 0 with errors"),
        "{text}"
    );
    let output = node.run(&["trace", "u-1", "-o", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (root, step) = (&json["spans"][0], &json["spans"][1]);
    assert_eq!(root["name"], "pod.start");
    assert_eq!(root["attributes"]["k8s.pod.name"], "demo");
    assert_eq!(step["parentSpanId"], root["spanId"]);
    let path = json["criticalPath"].as_array().unwrap();
    assert_eq!(path[0]["spanId"], step["spanId"]);
    assert_eq!(path[0]["owner"], "polylet");

    let none = node.run(&["trace", "missing"]);
    assert_eq!(none.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(stderr.trim_end(), "polylet: trace not found: missing");
}

#[test]
fn commands_fail_without_a_node_or_with_an_invalid_configuration() {
    let node = Node::prepared();
    for command in [&["status"][..], &["pods"], &["trace", "x"], &["logs", "x"]] {
        let output = node.run(command);
        assert_eq!(output.status.code(), Some(69), "{command:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
        assert!(stderr.contains("Polylet is not running in"), "{stderr}");
    }
    fs::remove_file(node.path("bin/polylet-prober")).unwrap();
    let output = node.run(&["run"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stderr).contains("polylet-prober"));

    let wrong = node.path("wrong.yaml");
    fs::write(
        &wrong,
        "apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nx: 1\n",
    )
    .unwrap();
    let output = node.run(&["check-config", wrong.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(78));
    assert!(String::from_utf8_lossy(&output.stdout).contains("wrong.yaml: x: no such field"));
    let right = node.path("config.yaml");
    assert!(
        node.run(&["check-config", right.to_str().unwrap()])
            .status
            .success()
    );
}

#[tokio::test]
async fn spans_are_forwarded_to_a_collector() {
    use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
        TraceService, TraceServiceServer,
    };
    use opentelemetry_proto::tonic::collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
    };
    struct Collector(tokio::sync::mpsc::UnboundedSender<ExportTraceServiceRequest>);
    #[tonic::async_trait]
    impl TraceService for Collector {
        async fn export(
            &self,
            request: tonic::Request<ExportTraceServiceRequest>,
        ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
            let _ = self.0.send(request.into_inner());
            Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
        }
    }
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let incoming =
        tonic::transport::server::TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = TraceServiceServer::new(Collector(sender));
    tokio::spawn(tonic::transport::Server::builder().serve_with_incoming(server, incoming));
    let mut node = Node::prepared();
    node.start_with("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}"));
    let request = tokio::time::timeout(TIMEOUT, received.recv())
        .await
        .unwrap()
        .unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans[0].name, "fake_service.start");
}

#[test]
fn kubelet_name_and_flags_are_accepted() {
    let mut node = Node::prepared();
    let kubelet = node.path("kubelet");
    std::os::unix::fs::symlink(POLYLET, &kubelet).unwrap();
    let ran = |args: &[&str]| Command::new(&kubelet).args(args).output().unwrap();
    let version = String::from_utf8(ran(&["--version"]).stdout).unwrap();
    assert!(version.starts_with("Kubernetes v1.36."), "{version}");
    let failed = ran(&["--kubeconf=/x"]);
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert!(
        !failed.status.success() && stderr.contains("did you mean --kubeconfig?"),
        "{stderr}"
    );

    let log = fs::File::create(node.path("log")).unwrap();
    let mut run = Command::new(&kubelet);
    run.arg(format!("--config={}", node.path("config.yaml").display()));
    run.args([
        "--hostname-override=N2",
        "--max-pods",
        "7",
        "-v=2",
        "--pod-infra-container-image=x",
    ]);
    node.supervisor = Some(run.stdin(Stdio::null()).stderr(log).spawn().unwrap());
    node.until_serving();
    let effective = node.path("run/supervisor/config.yaml");
    let text = fs::read_to_string(&effective).unwrap();
    assert!(
        text.contains("maxPods: 7") && text.contains("nodeName: n2"),
        "{text}"
    );
    let mode = fs::metadata(&effective).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let pid = node.service("prober")["pid"].as_u64().unwrap();
    let command_line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(
        command_line.contains("run/supervisor/config.yaml"),
        "{command_line}"
    );
    assert!(
        node.log()
            .contains("--pod-infra-container-image is ignored")
    );
}
