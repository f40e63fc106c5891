//! The stack with stand-ins for the services: real processes, sockets and signals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const POLYLET: &str = env!("CARGO_BIN_EXE_polylet");
const SERVICES: [&str; 9] = [
    "pleg",
    "pod-config",
    "prober",
    "image-gc",
    "volume-manager",
    "eviction",
    "sync-coordinator",
    "status-reporter",
    "node-api",
];
/// Generous: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(30);

struct Node {
    dir: tempfile::TempDir,
    supervisor: Option<Child>,
}

impl Node {
    fn prepared() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let standin = Path::new(POLYLET)
            .with_file_name("examples")
            .join("standin");
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for service in SERVICES {
            std::os::unix::fs::symlink(&standin, bin.join(format!("polylet-{service}"))).unwrap();
        }
        let root = dir.path().display();
        // This machine's swap and cgroups are not the point.
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             failSwapOn: false\nfailCgroupV1: false\n---\n\
             apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n1\n\
             runDirectory: {root}/run\nstateDirectory: {root}/state\nbinDirectory: {root}/bin\n"
        );
        fs::write(dir.path().join("config.yaml"), config).unwrap();
        Node {
            dir,
            supervisor: None,
        }
    }

    fn started() -> Node {
        let mut node = Node::prepared();
        node.start();
        node.until_serving();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(POLYLET);
        command
            .args(args)
            .arg("--config")
            .arg(self.path("config.yaml"))
            .stdin(Stdio::null());
        command
    }

    fn start(&mut self) {
        self.start_with("OTEL_EXPORTER_OTLP_ENDPOINT", "");
    }

    fn start_with(&mut self, variable: &str, value: &str) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let mut run = self.command(&["run"]);
        self.supervisor = Some(run.env(variable, value).stderr(log).spawn().unwrap());
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn status(&self) -> Vec<Value> {
        let output = self.run(&["status", "-o", "json"]);
        let parsed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        parsed["services"].as_array().cloned().unwrap_or_default()
    }

    fn service(&self, name: &str) -> Value {
        self.status()
            .into_iter()
            .find(|service| service["service"] == name)
            .unwrap_or_default()
    }

    fn until(&self, what: &str, is: impl Fn() -> bool) {
        let began = Instant::now();
        while !is() {
            assert!(
                began.elapsed() < PATIENCE,
                "{what} did not come; log:\n{}",
                self.log()
            );
            // A condition of other processes, looked at again and again; there is no runtime here.
            #[allow(clippy::disallowed_methods)]
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_serving(&self) {
        self.until("serving", || {
            let status = self.status();
            status.len() == 10 && status.iter().all(|service| service["health"] == "SERVING")
        });
    }

    fn signal(&mut self, signal: rustix::process::Signal) -> std::process::ExitStatus {
        let mut supervisor = self.supervisor.take().unwrap();
        kill(u64::from(supervisor.id()), signal);
        supervisor.wait().unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut supervisor) = self.supervisor.take() {
            // The services die with it.
            let _ = supervisor.kill();
            let _ = supervisor.wait();
        }
    }
}

fn kill(pid: u64, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn alive(pid: u64) -> bool {
    // A zombie that nobody has waited for is as good as dead.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[test]
fn starts_shows_and_stops_all() {
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
    assert!(text.starts_with("SERVICE"), "{text}");
    assert_eq!(text.lines().count(), 11, "{text}");
    node.until("the ready line", || {
        node.log().contains("all 9 services are serving")
    });

    let second = node.run(&["run"]);
    assert_eq!(second.status.code(), Some(75));
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(
        told.contains("supervisor.lock is held by process"),
        "{told}"
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
    let ended = |name| log.find(&format!("ended service={name}")).unwrap();
    assert!(ended("node-api") < ended("sync-coordinator"), "{log}");
    assert!(ended("sync-coordinator") < ended("pleg"), "{log}");
}

#[test]
fn what_dies_is_started_again_and_its_socket_stays() {
    let node = Node::started();
    let socket = fs::metadata(node.path("run/pleg.sock")).unwrap();
    for round in 1..=3 {
        let before = node.service("pleg")["pid"].as_u64().unwrap();
        kill(before, rustix::process::Signal::KILL);
        node.until("the restart", || {
            let now = node.service("pleg");
            now["health"] == "SERVING" && now["pid"] != before && now["restarts"] == round
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
            .contains("ended, starting it again now service=pleg"),
        "{}",
        node.log()
    );
    assert!(
        node.log()
            .contains("starting it again in 100ms service=pleg"),
        "{}",
        node.log()
    );
    assert!(
        node.status()
            .iter()
            .all(|s| s["service"] == "pleg" || s["restarts"] == 0)
    );
}

#[test]
fn services_die_with_the_supervisor_and_a_new_one_takes_over() {
    let mut node = Node::started();
    let pids: Vec<u64> = node
        .status()
        .iter()
        .filter_map(|s| s["pid"].as_u64())
        .collect();
    node.signal(rustix::process::Signal::KILL);
    node.until("the end of all", || pids.iter().all(|pid| !alive(*pid)));
    let gone = node.run(&["status"]);
    assert_eq!(gone.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no node is running in"));
    node.start();
    node.until_serving();
}

#[test]
fn spans_come_into_the_ring_and_out_as_a_waterfall() {
    let node = Node::started();
    node.until("the trace", || {
        node.run(&["trace", "default/demo"]).status.success()
    });
    let text = String::from_utf8(node.run(&["trace", "demo"]).stdout).unwrap();
    assert!(text.contains("standin.start result=n1"), "{text}");
    assert!(
        text.contains("1 spans in 1 services, 0 with errors"),
        "{text}"
    );
    let output = node.run(&["trace", "u-1", "-o", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["spans"][0]["attributes"]["k8s.pod.name"], "demo");

    let none = node.run(&["trace", "nobody"]);
    assert_eq!(none.status.code(), Some(1));
    let told = String::from_utf8_lossy(&none.stderr).into_owned();
    assert_eq!(told.trim_end(), "polylet: trace not found: nobody");
}

#[test]
fn commands_without_a_node_or_with_a_wrong_configuration() {
    let node = Node::prepared();
    for command in [&["status"][..], &["pods"], &["trace", "x"], &["logs", "x"]] {
        let output = node.run(command);
        assert_eq!(output.status.code(), Some(69), "{command:?}");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.contains("no node is running in"), "{told}");
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
    let request = tokio::time::timeout(PATIENCE, received.recv())
        .await
        .unwrap()
        .unwrap();
    let spans = &request.resource_spans[0].scope_spans[0].spans;
    assert_eq!(spans[0].name, "standin.start");
}

#[test]
fn under_the_kubelets_name_and_with_its_flags() {
    let mut node = Node::prepared();
    let kubelet = node.path("kubelet");
    std::os::unix::fs::symlink(POLYLET, &kubelet).unwrap();
    let ran = |words: &[&str]| Command::new(&kubelet).args(words).output().unwrap();
    let version = String::from_utf8(ran(&["--version"]).stdout).unwrap();
    assert!(version.starts_with("Kubernetes v1.36."), "{version}");
    let refused = ran(&["--kubeconf=/x"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("is --kubeconfig meant?"),
        "{said}"
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
    let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(words.contains("run/supervisor/config.yaml"), "{words}");
    assert!(
        node.log()
            .contains("--pod-infra-container-image counts for nothing")
    );
}
