//! `polylet pods` and `polylet logs` with a fake status-reporter and pod-config.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use futures::stream::BoxStream;
use polylet_kit::listener;
use polylet_kit::serve::{Routes, serve};
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1 as podconfig;
use polylet_wire::podconfig::v1::pod_config_service_server::{
    PodConfigService, PodConfigServiceServer,
};
use polylet_wire::status::v1::status_service_server::{StatusService, StatusServiceServer};
use polylet_wire::status::v1::watch_pod_statuses_response::Change;
use polylet_wire::status::v1::*;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

const MANIFEST: &str = r#"{"metadata":{"annotations":{}},"spec":{"containers":[{"name":"web"}],
    "initContainers":[{"name":"init"}]}}"#;

fn status(running: bool) -> String {
    let state = if running {
        r#""ready":true,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}"#
    } else {
        r#""ready":false,"state":{"terminated":{"exitCode":0,"reason":"Completed"}}"#
    };
    format!(
        r#"{{"phase":"Running","podIP":"10.88.0.5","startTime":"2026-01-01T00:00:00Z",
            "conditions":[{{"type":"Ready","status":"True"}}],
            "containerStatuses":[{{"name":"web","image":"i","imageID":"","restartCount":0,
            "containerID":"containerd://c1",{state}}}]}}"#
    )
}

fn pod(running: bool) -> PodStatus {
    PodStatus {
        r#ref: Some(PodRef {
            uid: "u1".to_owned(),
            namespace: "default".to_owned(),
            name: "web-n1".to_owned(),
        }),
        status: status(running).into(),
        manifest: MANIFEST.as_bytes().into(),
        waiting_for: vec!["readiness of web".to_owned()],
        stale: vec!["prober".to_owned()],
        cause: None,
    }
}

#[derive(Clone)]
struct Fake {
    running: watch::Receiver<bool>,
}

#[tonic::async_trait]
impl StatusService for Fake {
    type WatchPodStatusesStream = BoxStream<'static, Result<WatchPodStatusesResponse, Status>>;

    async fn watch_pod_statuses(
        &self,
        request: Request<WatchPodStatusesRequest>,
    ) -> Result<Response<Self::WatchPodStatusesStream>, Status> {
        if request.into_inner().pod_uid != "u1" {
            return Err(Status::invalid_argument("the statuses of one pod suffice"));
        }
        let changes =
            futures::stream::unfold((self.running.clone(), true), |(mut rx, first)| async move {
                if !first {
                    rx.changed().await.ok()?;
                }
                let change = Some(Change::Upsert(pod(*rx.borrow_and_update())));
                Some((Ok(WatchPodStatusesResponse { change }), (rx, false)))
            });
        Ok(Response::new(Box::pin(changes)))
    }

    async fn list_pod_statuses(
        &self,
        request: Request<ListPodStatusesRequest>,
    ) -> Result<Response<ListPodStatusesResponse>, Status> {
        let request = request.into_inner();
        let selects = |field: &str, value: &str| field.is_empty() || field == value;
        let selected = selects(&request.pod_uid, "u1")
            && selects(&request.namespace, "default")
            && selects(&request.name, "web-n1");
        let pod = pod(*self.running.borrow());
        let pods = selected.then_some(pod).into_iter().collect();
        Ok(Response::new(ListPodStatusesResponse { pods }))
    }
}

#[tonic::async_trait]
impl PodConfigService for Fake {
    type WatchPodsStream = BoxStream<'static, Result<podconfig::WatchPodsResponse, Status>>;

    async fn watch_pods(
        &self,
        _: Request<podconfig::WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        Err(Status::unimplemented("not called"))
    }

    type WatchMirrorPodsStream =
        BoxStream<'static, Result<podconfig::WatchMirrorPodsResponse, Status>>;

    async fn watch_mirror_pods(
        &self,
        _: Request<podconfig::WatchMirrorPodsRequest>,
    ) -> Result<Response<Self::WatchMirrorPodsStream>, Status> {
        Err(Status::unimplemented("not called"))
    }

    type WatchNodeStream = BoxStream<'static, Result<podconfig::WatchNodeResponse, Status>>;

    async fn watch_node(
        &self,
        _: Request<podconfig::WatchNodeRequest>,
    ) -> Result<Response<Self::WatchNodeStream>, Status> {
        Err(Status::unimplemented("not called"))
    }

    async fn list_manifest_errors(
        &self,
        _: Request<podconfig::ListManifestErrorsRequest>,
    ) -> Result<Response<podconfig::ListManifestErrorsResponse>, Status> {
        let error = podconfig::ManifestError {
            origin: "/m/bad.yaml".to_owned(),
            field: "spec.containers[0].name".to_owned(),
            message: "missing".to_owned(),
            ..podconfig::ManifestError::default()
        };
        Ok(Response::new(podconfig::ListManifestErrorsResponse {
            errors: vec![error],
        }))
    }
}

struct Node {
    dir: tempfile::TempDir,
    running: watch::Sender<bool>,
}

impl Node {
    fn started() -> Node {
        let dir = tempfile::tempdir().unwrap();
        let (running, is_running) = watch::channel(true);
        let root = dir.path().display();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
             podLogsDir: {root}/pods\n---\n\
             apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n1\n\
             runDirectory: {root}\nstateDirectory: {root}/state\n"
        );
        fs::write(dir.path().join("config.yaml"), config).unwrap();
        let fake = Fake {
            running: is_running,
        };
        for service in ["status-reporter", "pod-config"] {
            let socket = listener::bind(&dir.path().join(format!("{service}.sock"))).unwrap();
            let mut routes = Routes::default();
            routes.add(StatusServiceServer::new(fake.clone()));
            routes.add(PodConfigServiceServer::new(fake.clone()));
            routes.add(tonic_health::server::health_reporter().1);
            routes.add(polylet_kit::profile::server());
            tokio::spawn(serve(socket, routes, std::future::pending()));
        }
        let node = Node { dir, running };
        let log = node.log();
        fs::create_dir_all(log.parent().unwrap()).unwrap();
        let lines = "2026-01-01T00:00:00.0Z stdout F one\n2026-01-01T00:00:01.0Z stdout F two\n";
        fs::write(
            log.with_file_name("0.log"),
            "2026-01-01T00:00:00.0Z stderr F old\n",
        )
        .unwrap();
        fs::write(log, lines).unwrap();
        node
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("pods/default_web-n1_u1/web/1.log")
    }

    fn command(&self, args: &[&str]) -> tokio::process::Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polylet"));
        command
            .args(args)
            .arg("--config")
            .arg(self.dir.path().join("config.yaml"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.into()
    }

    async fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().await.unwrap()
    }

    async fn text(&self, args: &[&str]) -> String {
        let output = self.run(args).await;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn pods_are_listed_as_table_and_json() {
    let node = Node::started();
    let text = node.text(&["pods"]).await;
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("NAMESPACE"), "{text}");
    let line = lines.next().unwrap();
    for word in [
        "default",
        "web-n1",
        "1/1",
        "Running",
        "10.88.0.5",
        "readiness of web",
    ] {
        assert!(line.contains(word), "{text}");
    }
    assert!(line.contains("(stale: prober unavailable)"), "{text}");
    assert!(
        text.contains("/m/bad.yaml: spec.containers[0].name: missing"),
        "{text}"
    );

    let json: serde_json::Value =
        serde_json::from_str(&node.text(&["pods", "-o", "json"]).await).unwrap();
    assert_eq!(json["pods"][0]["status"], "Running");
    assert_eq!(json["pods"][0]["pod"]["status"]["podIP"], "10.88.0.5");
    assert_eq!(json["manifestErrors"][0]["origin"], "/m/bad.yaml");
}

#[tokio::test]
async fn current_and_previous_logs_are_printed() {
    let node = Node::started();
    assert_eq!(node.text(&["logs", "web-n1"]).await, "one\ntwo\n");
    assert_eq!(
        node.text(&["logs", "default/web-n1", "--tail", "1"]).await,
        "two\n"
    );
    let stamped = node
        .text(&["logs", "u1", "-c", "web", "--timestamps", "--tail", "1"])
        .await;
    assert!(stamped.starts_with("2026-01-01T00:00:01"), "{stamped}");
    let previous = node.run(&["logs", "web-n1", "--previous"]).await;
    assert_eq!(previous.stderr, b"old\n");
    for (args, message) in [
        (&["logs", "none"][..], "pod \"none\" not found"),
        (
            &["logs", "web-n1", "-c", "x"],
            "container \"x\" not found in pod web-n1; containers: web, init",
        ),
        (
            &["logs", "web-n1", "-c", "init"],
            "container \"init\" has no log yet",
        ),
    ] {
        let output = node.run(args).await;
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains(message), "{stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
}

#[tokio::test]
async fn following_ends_when_the_container_exits() {
    let node = Node::started();
    let following = node.command(&["logs", "web-n1", "-f"]).spawn().unwrap();
    let mut log = fs::File::options().append(true).open(node.log()).unwrap();
    std::io::Write::write_all(&mut log, b"2026-01-01T00:00:02.0Z stdout F three\n").unwrap();
    node.running.send(false).unwrap();
    let output = tokio::time::timeout(Duration::from_secs(30), following.wait_with_output());
    let output = output.await.unwrap().unwrap();
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "one\ntwo\nthree\n"
    );
}

#[tokio::test]
async fn profile_of_a_service_is_written_to_a_file() {
    let node = Node::started();
    let file = node.dir.path().join("profile.pb.gz");
    let path = file.display().to_string();
    let arguments = ["profile", "pod-config", "--seconds", "1", "--file", &path];
    let message = node.text(&arguments).await;
    assert!(
        message.contains(&format!("go tool pprof -top {path}")),
        "{message}"
    );
    let written = fs::read(&file).unwrap();
    assert_eq!(written.get(..2), Some(&[0x1f, 0x8b][..]), "gzip");
    // The fake service has another allocator.
    let heap = node
        .run(&["profile", "pod-config", "--seconds", "1", "--heap"])
        .await;
    let stderr = String::from_utf8_lossy(&heap.stderr).into_owned();
    assert_eq!(heap.status.code(), Some(70), "{stderr}");
    assert!(
        stderr.contains("refused: the allocator of this program"),
        "{stderr}"
    );
}

#[tokio::test]
async fn profiles_are_refused_by_name_and_by_duration() {
    let node = Node::started();
    for (arguments, code, message) in [
        (
            &["profile", "plex"][..],
            1,
            "unknown service \"plex\"; known are pleg, pod-config",
        ),
        (&["profile", "pleg"], 69, "(pleg is not listening)"),
        (
            &["profile", "pleg", "--seconds", "0"],
            64,
            "0 is not in 1..=300",
        ),
        (
            &["profile", "pleg", "--seconds", "301"],
            64,
            "301 is not in 1..=300",
        ),
    ] {
        let output = node.run(arguments).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}

#[tokio::test]
async fn health_of_one_service_is_checked() {
    let node = Node::started();
    assert_eq!(node.text(&["health", "pod-config"]).await, "SERVING\n");
    for (service, code, message) in [
        ("pleg", 69, "(pleg is not listening)"),
        (
            "plex",
            1,
            "unknown service \"plex\"; known are pleg, pod-config",
        ),
    ] {
        let output = node.run(&["health", service]).await;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
    }
}
