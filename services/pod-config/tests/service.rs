//! The service as a process of its own: a directory in, streams out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::watch_pods_response::Change;
use polylet_wire::podconfig::v1::{
    ListProblemsRequest, Pod, PodSource, Problem, WatchObjectRequest, WatchObjectResponse, WatchPodsRequest, WatchPodsResponse,
    watch_object_response,
};
use tokio::time::timeout;
use tonic::Streaming;

const PATIENCE: Duration = Duration::from_secs(15);

struct Node {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Node {
    fn new(extra: &str) -> Node {
        let dir = tempfile::tempdir().expect("a directory");
        let node = Node { dir, child: None };
        fs::create_dir(node.manifests()).expect("manifests");
        let at = node.dir.path().display();
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{extra}\n---\n\
             apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n1\nrunDirectory: {at}/run\nstateDirectory: {at}/state\nrootDirectory: {at}/root\n"
        );
        fs::write(node.path("config.yaml"), config).expect("config");
        node
    }

    fn with_directory() -> Node {
        let mut node = Node::new("");
        let config = fs::read_to_string(node.path("config.yaml")).expect("config");
        let line = format!("kind: KubeletConfiguration\nstaticPodPath: {}\nfileCheckFrequency: 500ms\n", node.manifests().display());
        fs::write(node.path("config.yaml"), config.replace("kind: KubeletConfiguration\n", &line)).expect("config");
        node.start();
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// Written aside and moved, as a careful writer does.
    fn put(&self, name: &str, text: &str) {
        let aside = self.path("aside");
        fs::write(&aside, text).expect("aside");
        fs::rename(aside, self.manifests().join(name)).expect("in place");
    }

    fn start(&mut self) {
        let child = Command::new(env!("CARGO_BIN_EXE_polylet-pod-config"))
            .arg("--config")
            .arg(self.path("config.yaml"))
            .stdout(Stdio::null())
            .stderr(fs::OpenOptions::new().create(true).append(true).open(self.path("log")).expect("log"))
            .spawn();
        self.child = Some(child.expect("the service"));
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    async fn channel(&self) -> tonic::transport::Channel {
        let socket = self.path("run/pod-config.sock");
        let connect = async {
            while tokio::net::UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, connect).await.unwrap_or_else(|_| panic!("no socket: {}", self.log()));
        polylet_kit::channel::plain(&socket)
    }

    async fn watch(&self, source: PodSource) -> Watch {
        let mut client = PodConfigServiceClient::new(self.channel().await);
        let request = WatchPodsRequest { resume_after: None, source: source.into() };
        Watch { stream: client.watch_pods(request).await.expect("a stream").into_inner(), pods: BTreeMap::new() }
    }

    async fn object(&self, kind: &str, name: &str) -> Streaming<WatchObjectResponse> {
        let mut client = ObjectServiceClient::new(self.channel().await);
        let request = WatchObjectRequest { kind: kind.into(), namespace: "default".into(), name: name.into() };
        client.watch_object(request).await.expect("a stream").into_inner()
    }

    /// Waits until the problems are as wanted.
    async fn problems(&self, wanted: impl Fn(&[Problem]) -> bool) -> Vec<Problem> {
        let mut client = PodConfigServiceClient::new(self.channel().await);
        let mut last = Vec::new();
        let asking = async {
            loop {
                last = client.list_problems(ListProblemsRequest {}).await.expect("problems").into_inner().problems;
                if wanted(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(PATIENCE, asking).await.is_err() {
            panic!("not the problems that were expected: {last:#?}\n{}", self.log());
        }
        last
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Watch {
    stream: Streaming<WatchPodsResponse>,
    pods: BTreeMap<String, Pod>,
}

impl Watch {
    /// Reads on until the pods, once in step, are as wanted.
    async fn until(&mut self, what: &str, wanted: impl Fn(&BTreeMap<String, Pod>) -> bool) {
        let mut reading = async || {
            loop {
                let message = self.stream.message().await.expect("the stream").expect("more");
                match message.change.expect("a change") {
                    Change::Reset(_) => self.pods.clear(),
                    Change::Upsert(pod) => drop(self.pods.insert(pod.r#ref.clone().expect("a ref").uid, pod)),
                    Change::Remove(pod) => drop(self.pods.remove(&pod.uid)),
                    Change::Synced(_) if wanted(&self.pods) => return,
                    Change::Synced(_) => {}
                }
            }
        };
        if timeout(PATIENCE, reading()).await.is_err() {
            panic!("{what}: {:?}", self.names());
        }
    }

    fn names(&self) -> Vec<String> {
        names(&self.pods)
    }
}

fn names(pods: &BTreeMap<String, Pod>) -> Vec<String> {
    let mut names: Vec<String> = pods.values().map(|p| p.r#ref.clone().expect("a ref").name).collect();
    names.sort();
    names
}

fn pod(name: &str, image: &str) -> String {
    format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: {image}}}]\n")
}

#[tokio::test]
async fn pods_come_change_and_go() {
    let node = Node::with_directory();
    let mut watch = node.watch(PodSource::File).await;
    watch.until("empty", |pods| pods.is_empty()).await;
    node.put("web.yaml", &pod("web", "busybox"));
    watch.until("the pod", |pods| names(pods) == ["web-n1"]).await;
    let first = watch.pods.values().next().expect("a pod").clone();
    assert!(first.cause.as_ref().is_some_and(|c| c.traceparent.len() == 55), "{:?}", first.cause);
    fs::write(node.manifests().join("web.yaml"), pod("web", "other")).expect("written in place");
    watch.until("the changed pod", |pods| pods.len() == 1 && !pods.contains_key(&first.r#ref.clone().expect("a ref").uid)).await;
    fs::remove_file(node.manifests().join("web.yaml")).expect("removed");
    watch.until("nothing", |pods| pods.is_empty()).await;
    fs::remove_dir(node.manifests()).expect("removed");
    fs::create_dir(node.manifests()).expect("made again");
    node.put("web.yaml", &pod("again", "busybox"));
    watch.until("a pod of the new directory", |pods| names(pods) == ["again-n1"]).await;
}

#[tokio::test]
async fn a_file_being_written_is_no_removal() {
    use std::io::Write;
    let node = Node::with_directory();
    node.put("two.yaml", &format!("{}---\n{}", pod("a", "i"), pod("b", "i")));
    let mut watch = node.watch(PodSource::File).await;
    watch.until("both", |pods| pods.len() == 2).await;
    let before = watch.pods.clone();
    // Cut at the end of the first document, and the writer takes its time.
    let mut file = fs::File::create(node.manifests().join("two.yaml")).expect("truncated");
    file.write_all(pod("a", "i").as_bytes()).expect("half");
    node.put("marker.yaml", &pod("marker", "i"));
    watch.until("the marker", |pods| names(pods).contains(&"marker-n1".to_owned())).await;
    assert_eq!(watch.names(), ["a-n1", "b-n1", "marker-n1"]);
    file.write_all(format!("---\n{}", pod("c", "i")).as_bytes()).expect("the rest");
    drop(file);
    watch.until("the whole file", |pods| names(pods) == ["a-n1", "c-n1", "marker-n1"]).await;
    let a = |pods: &BTreeMap<String, Pod>| pods.values().find(|p| p.r#ref.as_ref().is_some_and(|r| r.name == "a-n1")).cloned();
    assert_eq!(a(&watch.pods), a(&before), "what did not change is not touched");
    // Broken: everything stands, and a problem says so.
    node.put("two.yaml", "apiVersion: v1\nkind: Pod\nmetad");
    node.problems(|all| all.iter().any(|p| p.message.contains("default/a-n1, Pod default/c-n1"))).await;
    node.put("marker.yaml", &pod("marker", "new"));
    watch.until("the marker", |pods| pods.len() == 3 && pods.values().any(|p| String::from_utf8_lossy(&p.manifest).contains("\"new\""))).await;
    assert_eq!(watch.names(), ["a-n1", "c-n1", "marker-n1"]);
}

#[tokio::test]
async fn a_restart_changes_nothing() {
    let mut node = Node::with_directory();
    node.put("a.yaml", &pod("a", "i"));
    node.put("b.yaml", &format!("{}---\n{}", pod("b", "i"), pod("c", "i")));
    let mut watch = node.watch(PodSource::File).await;
    watch.until("all", |pods| pods.len() == 3).await;
    let traces: std::collections::BTreeSet<_> = watch.pods.values().map(|p| p.cause.clone().expect("a cause").traceparent).collect();
    assert_eq!(traces.len(), 3, "each pod has a trace of its own");
    // Killed, as soon as the set is on disk.
    let kept = node.path("state/pod-config/file.json");
    let on_disk = async {
        while !fs::read_to_string(&kept).is_ok_and(|t| traces.iter().all(|trace| t.contains(trace))) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, on_disk).await.expect("kept");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&kept).expect("kept").permissions().mode() & 0o777, 0o600);
    node.kill();
    node.put("b.yaml", "broken while nobody looked");
    node.start();
    let mut again = node.watch(PodSource::File).await;
    again.until("all again", |pods| pods.len() == 3).await;
    assert_eq!(again.pods, watch.pods);
}

#[tokio::test]
async fn objects_are_served_and_followed() {
    let node = Node::with_directory();
    let mut stream = node.object("Secret", "s").await;
    let next = async |stream: &mut Streaming<WatchObjectResponse>| {
        let message = timeout(PATIENCE, stream.message()).await.expect("in time").expect("the stream").expect("more");
        match message.state.expect("a state") {
            watch_object_response::State::Manifest(json) => Some(String::from_utf8(json).expect("text")),
            watch_object_response::State::Absent(_) => None,
        }
    };
    assert_eq!(next(&mut stream).await, None);
    let secret = |value: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{k: {value}}}\n");
    node.put("s.yaml", &secret("hunter2"));
    assert!(next(&mut stream).await.is_some_and(|json| json.contains("aHVudGVyMg==")));
    node.put("s.yaml", &secret("swordfish"));
    assert!(next(&mut stream).await.is_some_and(|json| json.contains("c3dvcmRmaXNo")));
    fs::remove_file(node.manifests().join("s.yaml")).expect("removed");
    assert_eq!(next(&mut stream).await, None);
    assert!(!node.log().contains("hunter2") && !node.log().contains("aHVudGVy"));
}

#[tokio::test]
async fn bad_files_touch_nobody_else() {
    let node = Node::with_directory();
    node.put("good.yaml", &pod("good", "i"));
    node.put("words.yaml", "this is no manifest");
    node.put("kind.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n");
    node.put("nameless.yaml", "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: i}]}\n");
    node.put("second.yaml", &pod("good", "other"));
    node.put("junk.yaml", &"{[".repeat(1 << 20));
    node.put("clash.yaml", &pod("clash", "i}, {name: a, image: i"));
    node.put("volume.yaml", &pod("volume", "i, volumeMounts: [{name: v, mountPath: /v}]"));
    node.put("slash.yaml", &pod("a/b", "i"));
    node.put("grace.yaml", &(pod("grace", "i") + "  terminationGracePeriodSeconds: -1\n"));
    node.put("image.yaml", &pod("image", "' i'"));
    node.put("unknown.yaml", &pod("unknown", "i, colour: blue"));
    node.put(".hidden.yaml", "not looked at");
    let m = node.manifests();
    assert!(Command::new("mkfifo").arg(m.join("fifo.yaml")).status().expect("mkfifo").success());
    std::os::unix::fs::symlink(m.join("loop.yaml"), m.join("loop.yaml")).expect("a loop");
    std::os::unix::fs::symlink("/nowhere", m.join("dangling.yaml")).expect("a link");
    fs::create_dir(m.join("folder")).expect("a folder");
    let mut watch = node.watch(PodSource::File).await;
    watch.until("the good ones", |pods| names(pods) == ["good-n1", "unknown-n1"]).await;
    let expected = [
        ("words.yaml", "", "is not a manifest"),
        ("kind.yaml", "kind", "Deployment"),
        ("nameless.yaml", "metadata.name", "required"),
        ("second.yaml", "metadata.name", "good.yaml"),
        ("junk.yaml", "", "not"),
        ("clash.yaml", "spec.containers[1].name", "spec.containers[0]"),
        ("volume.yaml", "spec.containers[0].volumeMounts[0].name", "\"v\" is not a volume"),
        ("slash.yaml", "metadata.name", "\"a/b\" is not a DNS name"),
        ("grace.yaml", "spec.terminationGracePeriodSeconds", "-1 is not at least 0"),
        ("image.yaml", "spec.containers[0].image", "white space"),
        ("unknown.yaml", "spec.containers[0].colour", "no effect"),
        ("fifo.yaml", "", "FIFO"),
        ("loop.yaml", "", "cannot be read"),
        ("dangling.yaml", "", "not there"),
        ("folder", "", "directory"),
    ];
    let told = |all: &[Problem], (file, field, message): &(&str, &str, &str)| {
        all.iter().any(|p| p.origin.ends_with(file) && p.field == *field && p.message.contains(message))
    };
    let problems = node.problems(|all| expected.iter().all(|one| told(all, one))).await;
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (file, ..) in expected {
        let path = m.join(file);
        if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) }.expect("removed");
    }
    node.problems(|all| all.is_empty()).await;
}

#[tokio::test]
async fn sources_that_are_not_configured_are_empty() {
    let mut node = Node::new("");
    node.start();
    for source in [PodSource::Api, PodSource::File, PodSource::Http] {
        node.watch(source).await.until("empty", |pods| pods.is_empty()).await;
    }
    let mut stream = node.object("ConfigMap", "c").await;
    let message = timeout(PATIENCE, stream.message()).await.expect("in time").expect("the stream").expect("more");
    assert!(matches!(message.state, Some(watch_object_response::State::Absent(_))));
}

#[tokio::test]
async fn a_url_gives_pods_and_its_absence_takes_none() {
    let (port, answer) = serve().await;
    let mut node = Node::new(&format!("staticPodURL: http://user:secretword@127.0.0.1:{port}/pods?token=hidden\nhttpCheckFrequency: 100ms\nstaticPodURLHeader: {{X-Key: [hush]}}"));
    answer.send_replace((200, pod("web", "i")));
    node.start();
    let mut watch = node.watch(PodSource::Http).await;
    watch.until("the pod", |pods| names(pods) == ["web-n1"]).await;
    let first = watch.pods.clone();
    answer.send_replace((500, String::new()));
    let problems = node.problems(|all| all.iter().any(|p| p.message.contains("status 500"))).await;
    assert_eq!(problems[0].origin, format!("http://127.0.0.1:{port}/pods"));
    node.kill();
    node.start();
    let mut again = node.watch(PodSource::Http).await;
    again.until("the kept pod", |pods| names(pods) == ["web-n1"]).await;
    let stale = again.pods.values().next().expect("a pod").clone();
    assert!(stale.stale_since.is_some());
    answer.send_replace((200, pod("web", "i")));
    again.until("confirmed", |pods| *pods == first).await;
    answer.send_replace((200, "kind: Pod".to_owned()));
    node.problems(|all| all.iter().any(|p| p.field == "apiVersion")).await;
    answer.send_replace((200, String::new()));
    again.until("nothing", |pods| pods.is_empty()).await;
    node.problems(|all| all.iter().any(|p| p.message.contains("empty body"))).await;
    let log = node.log();
    assert!(!["secretword", "hidden", "hush"].iter().any(|secret| log.contains(secret)), "{log}");
}

/// A little HTTP server that answers as it is told.
async fn serve() -> (u16, tokio::sync::watch::Sender<(u16, String)>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let answer = tokio::sync::watch::Sender::new((200, String::new()));
    let told = answer.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (status, body) = told.borrow().clone();
            let mut asked = vec![0; 4096];
            let n = stream.read(&mut asked).await.unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..n]).to_lowercase();
            let wanted = ["get /pods?token=hidden http/1.1", "x-key: hush", "authorization: basic dxnlcjpzzwnyzxr3b3jk"];
            let status = if wanted.iter().all(|w| asked.contains(w)) { status } else { 400 };
            let length = body.len();
            let _ = stream.write_all(format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}").as_bytes()).await;
        }
    });
    (port, answer)
}

#[test]
fn it_says_what_it_is() {
    let run = |argument: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_polylet-pod-config")).arg(argument).output().expect("run");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(run("--version").starts_with("polylet-pod-config "));
    assert!(run("--manifest").contains("polylet.podconfig.v1"));
    assert!(!Path::new("/nowhere").exists());
}
