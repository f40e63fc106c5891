//! The example service as a real process: exit codes, health, info, drain, inherited sockets.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use polylet_kit::profile;
use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{
    DrainRequest, GetInfoRequest, ProfileKind, SetLogVerbosityRequest,
};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A user that is no service's.
const OTHER_USER: u32 = 54321;

fn program() -> PathBuf {
    // Cargo builds the examples before the tests of the same package.
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(2).unwrap();
    let program = target.join("examples/service");
    assert!(
        program.exists(),
        "run all tests of the package: its examples are part of them"
    );
    program
}

struct TestDir {
    dir: tempfile::TempDir,
}

impl TestDir {
    fn new() -> TestDir {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let text = format!(
            "apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n1\n\
             runDirectory: {root}/run\nstateDirectory: {root}/state\n"
        );
        std::fs::write(dir.path().join("config.yaml"), text).unwrap();
        TestDir { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(program());
        command
            .arg("--config")
            .arg(self.path("config.yaml"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, mishap: &str) -> Output {
        self.command().env("MISHAP", mishap).output().unwrap()
    }

    fn start(&self) -> Started {
        let log = std::fs::File::create(self.path("log")).unwrap();
        Started {
            child: self.command().stderr(log).spawn().unwrap(),
        }
    }

    async fn wait_serving(&self) {
        let began = Instant::now();
        loop {
            let mut health = HealthClient::new(channel(&self.path("run/pleg.sock")));
            let check = HealthCheckRequest {
                service: String::new(),
            };
            if let Ok(response) = health.check(check).await {
                assert_eq!(response.into_inner().status(), ServingStatus::Serving);
                return;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{}", self.log());
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }
}

struct Started {
    child: Child,
}

impl Started {
    fn terminate(mut self) -> Option<i32> {
        let pid = i32::try_from(self.child.id()).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn channel(socket: &Path) -> tonic::transport::Channel {
    polylet_kit::channel::unix(socket)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn prints_version_and_descriptor() {
    let run = |arg: &str| Command::new(program()).arg(arg).output().unwrap();
    assert_eq!(run("--version").stdout, b"polylet-pleg 0.0.1\n");
    let descriptor: serde_json::Value =
        serde_json::from_slice(&run("--descriptor").stdout).unwrap();
    assert_eq!(descriptor["calls"][0]["service"], "pod-config");
    let serves = descriptor["serves"].as_array().unwrap();
    for common in ["polylet.lifecycle.v1", "polylet.notice.v1"] {
        assert!(
            serves.iter().any(|api| api["package"] == common),
            "{serves:?}"
        );
    }
    let wrong = run("--nonsense");
    assert_eq!(wrong.status.code(), Some(64));
    let missing = Command::new(program())
        .args(["--config", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(78));
    assert!(
        stderr(&missing).contains("reading the configuration /nonexistent"),
        "{}",
        stderr(&missing)
    );
}

#[test]
fn a_failed_task_ends_the_process_with_its_name() {
    let dir = TestDir::new();
    for (mishap, error) in [
        ("panic", "task idler panicked"),
        ("end", "task idler ended"),
        ("build", "building the service: there is no runtime"),
    ] {
        let output = dir.run(mishap);
        assert_eq!(output.status.code(), Some(70), "{}", stderr(&output));
        assert!(stderr(&output).contains(error), "{}", stderr(&output));
    }
}

#[tokio::test]
async fn serves_health_and_info_and_drains() {
    let dir = TestDir::new();
    let started = dir.start();
    dir.wait_serving().await;
    let socket = dir.path("run/pleg.sock");
    let mut lifecycle = LifecycleServiceClient::new(channel(&socket));
    let info = lifecycle
        .get_info(GetInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (info.service.as_str(), info.version.as_str()),
        ("pleg", "0.0.1")
    );
    assert_eq!(info.pid, started.child.id());
    // The one that it declares is no part of this node.
    assert!(info.peers.is_empty());
    for _ in 0..2 {
        let unfinished = lifecycle
            .drain(DrainRequest::default())
            .await
            .unwrap()
            .into_inner()
            .unfinished;
        assert_eq!(unfinished, ["one thing"]);
    }
    let mut health = HealthClient::new(channel(&socket));
    let check = HealthCheckRequest {
        service: String::new(),
    };
    let status = health.check(check).await.unwrap().into_inner().status();
    assert_eq!(status, ServingStatus::NotServing);
    assert_eq!(started.terminate(), Some(0), "{}", dir.log());
}

/// A connection of another user in the group of root.
async fn channel_of_another_user(socket: &Path) -> tonic::transport::Channel {
    let socket = socket.to_owned();
    let connect = move || {
        // Of this thread, which ends then.
        rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(OTHER_USER)).unwrap();
        std::os::unix::net::UnixStream::connect(socket).unwrap()
    };
    let stream = std::thread::spawn(connect).join().unwrap();
    stream.set_nonblocking(true).unwrap();
    let stream = tokio::net::UnixStream::from_std(stream).unwrap();
    let mut stream = Some(TokioIo::new(stream));
    let closed = || std::io::Error::from(std::io::ErrorKind::NotConnected);
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        std::future::ready(stream.take().ok_or_else(closed))
    });
    let endpoint = tonic::transport::Endpoint::from_static("http://localhost");
    endpoint.connect_with_connector(connector).await.unwrap()
}

#[tokio::test]
async fn another_user_of_the_sockets_group_may_call_but_not_drain() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = TestDir::new();
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.dir.path(), open).unwrap();
    let log = std::fs::File::create(dir.path("log")).unwrap();
    let child = dir
        .command()
        .stderr(log)
        .env("POLYLET_SOCKET_GROUP", "0")
        .spawn();
    let started = Started {
        child: child.unwrap(),
    };
    dir.wait_serving().await;
    let channel = channel_of_another_user(&dir.path("run/pleg.sock")).await;
    let mut lifecycle = LifecycleServiceClient::new(channel);
    lifecycle.get_info(GetInfoRequest {}).await.unwrap();
    let denied = lifecycle.drain(DrainRequest::default()).await.unwrap_err();
    assert_eq!(denied.code(), tonic::Code::PermissionDenied);
    let user = OTHER_USER.to_string();
    assert!(denied.message().contains(&user), "{denied:?}");
    // It has not begun to drain.
    dir.wait_serving().await;
    assert_eq!(started.terminate(), Some(0), "{}", dir.log());
}

#[tokio::test]
async fn log_verbosity_is_set_while_the_service_runs() {
    for (verbosity, expected) in [(4, true), (3, false)] {
        let dir = TestDir::new();
        let started = dir.start();
        dir.wait_serving().await;
        let mut lifecycle = LifecycleServiceClient::new(channel(&dir.path("run/pleg.sock")));
        for verbosity in [5, verbosity] {
            let request = SetLogVerbosityRequest { verbosity };
            lifecycle.set_log_verbosity(request).await.unwrap();
        }
        assert_eq!(started.terminate(), Some(0), "{}", dir.log());
        let log = dir.log();
        assert!(log.contains("log verbosity set verbosity=5"), "{log}");
        assert_eq!(
            log.contains("DEBUG pleg: idle work ended"),
            expected,
            "{log}"
        );
    }
}

#[tokio::test]
async fn profiles_of_a_running_service_are_taken() {
    let dir = TestDir::new();
    let started = dir.start();
    dir.wait_serving().await;
    let channel = channel(&dir.path("run/pleg.sock"));
    for kind in [ProfileKind::Cpu, ProfileKind::Heap] {
        let duration = Duration::from_millis(200);
        let taken = profile::take_from(channel.clone(), kind, duration).await;
        let taken = taken.unwrap();
        assert_eq!(taken.get(..2), Some(&[0x1f, 0x8b][..]), "{kind:?}");
    }
    // A caller that goes ends its profile, and another one gets the next.
    let long = profile::take_from(channel.clone(), ProfileKind::Cpu, Duration::from_secs(60));
    let began = tokio::time::timeout(Duration::from_millis(100), long).await;
    assert!(began.is_err(), "{began:?}");
    let began = Instant::now();
    loop {
        let short = Duration::from_millis(10);
        match profile::take_from(channel.clone(), ProfileKind::Cpu, short).await {
            Ok(_) => break,
            Err(status) => assert_eq!(status.code(), tonic::Code::ResourceExhausted),
        }
        assert!(began.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(started.terminate(), Some(0), "{}", dir.log());
}

#[tokio::test]
async fn an_inherited_socket_is_used_and_stays() {
    let dir = TestDir::new();
    let socket = dir.path("inherited.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    // As its standard input, which std can pass to a child safely; LISTEN_FDS_FIRST_FD names it.
    let child = dir
        .command()
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(
            listener.try_clone().unwrap(),
        )))
        .env("LISTEN_FDS", "1")
        .env("LISTEN_FDS_FIRST_FD", "0")
        .spawn()
        .unwrap();
    let started = Started { child };
    let mut lifecycle = LifecycleServiceClient::new(channel(&socket));
    let info = lifecycle
        .get_info(GetInfoRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_eq!(info.service, "pleg");
    assert_eq!(started.terminate(), Some(0));
    assert!(
        std::os::unix::net::UnixStream::connect(&socket).is_ok(),
        "the socket outlives it"
    );
}

#[tokio::test]
async fn a_second_process_waits_for_the_first() {
    let dir = TestDir::new();
    let first = dir.start();
    dir.wait_serving().await;
    let mut second = dir.command().stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(first.terminate(), Some(0));
    dir.wait_serving().await;
    assert!(second.try_wait().unwrap().is_none());
    assert_eq!(Started { child: second }.terminate(), Some(0));
}
