#![allow(dead_code, reason = "shared by test programs that use different parts")]
//! A pod-config process in a temporary directory, and watches on it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use prost_types::FieldMask;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::watch_pods_response::Change;
use polylet_wire::podconfig::v1::{
    ListManifestErrorsRequest, ManifestError, Pod, PodSource, WatchObjectRequest,
    WatchObjectResponse, WatchPodsRequest, WatchPodsResponse,
};
use tokio::time::timeout;
use tonic::Streaming;

pub(crate) const TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct Node {
    dir: tempfile::TempDir,
    child: Option<Child>,
}

impl Node {
    pub(crate) fn new(extra: &str) -> Node {
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

    pub(crate) fn with_directory() -> Node {
        let mut node = Node::new("");
        let config = fs::read_to_string(node.path("config.yaml")).expect("config");
        let line = format!(
            "kind: KubeletConfiguration\nstaticPodPath: {}\nfileCheckFrequency: 500ms\n",
            node.manifests().display()
        );
        fs::write(
            node.path("config.yaml"),
            config.replace("kind: KubeletConfiguration\n", &line),
        )
        .expect("config");
        node.start();
        node
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// Writes a manifest to a temporary file and renames it.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let temporary = self.path("temporary");
        fs::write(&temporary, text).expect("temporary");
        fs::rename(temporary, self.manifests().join(name)).expect("in place");
    }

    pub(crate) fn start(&mut self) {
        // A write beyond a limit of the file size is an error then, like one to a full disk.
        let child = Command::new("sh")
            .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
            .arg(env!("CARGO_BIN_EXE_polylet-pod-config"))
            .arg("--config")
            .arg(self.path("config.yaml"))
            .stdout(Stdio::null())
            .stderr(
                fs::OpenOptions::new()
                    .create(true)
                    .append(true)
                    .open(self.path("log"))
                    .expect("log"),
            )
            .spawn();
        self.child = Some(child.expect("the service"));
    }

    /// Sets the soft limit of a resource for the running process; returns the former one.
    pub(crate) fn limit(&self, resource: Resource, limit: u64) -> u64 {
        let pid = self.child.as_ref().map(Child::id).expect("started");
        let pid = Pid::from_raw(pid.cast_signed());
        let former = prlimit(
            pid,
            resource,
            Rlimit {
                current: Some(limit).filter(|limit| *limit != u64::MAX),
                maximum: getrlimit(resource).maximum,
            },
        );
        former.expect("a limit").current.unwrap_or(u64::MAX)
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) async fn channel(&self) -> tonic::transport::Channel {
        let socket = self.path("run/pod-config.sock");
        let connect = async {
            while tokio::net::UnixStream::connect(&socket).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TIMEOUT, connect)
            .await
            .unwrap_or_else(|_| panic!("no socket: {}", self.log()));
        polylet_kit::channel::unix(&socket)
    }

    pub(crate) async fn watch(&self, source: PodSource) -> Watch {
        let watch = self.watch_masked(source, &[]).await;
        watch.expect("a stream")
    }

    /// Watches with a manifest mask, unless there are no paths.
    pub(crate) async fn watch_masked(
        &self,
        source: PodSource,
        paths: &[&str],
    ) -> Result<Watch, tonic::Status> {
        let mut client = PodConfigServiceClient::new(self.channel().await);
        let request = WatchPodsRequest {
            source: source.into(),
            manifest_mask: (!paths.is_empty()).then(|| FieldMask {
                paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            }),
            ..WatchPodsRequest::default()
        };
        Ok(Watch {
            stream: client.watch_pods(request).await?.into_inner(),
            pods: BTreeMap::new(),
        })
    }

    pub(crate) async fn object(&self, kind: &str, name: &str) -> Streaming<WatchObjectResponse> {
        let mut client = ObjectServiceClient::new(self.channel().await);
        let request = WatchObjectRequest {
            kind: kind.into(),
            namespace: "default".into(),
            name: name.into(),
            ..WatchObjectRequest::default()
        };
        client
            .watch_object(request)
            .await
            .expect("a stream")
            .into_inner()
    }

    /// Waits until the manifest errors match.
    pub(crate) async fn errors(
        &self,
        matches: impl Fn(&[ManifestError]) -> bool,
    ) -> Vec<ManifestError> {
        let mut client = PodConfigServiceClient::new(self.channel().await);
        let mut last = Vec::new();
        let polling = async {
            loop {
                last = client
                    .list_manifest_errors(ListManifestErrorsRequest {})
                    .await
                    .expect("errors")
                    .into_inner()
                    .errors;
                if matches(&last) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(TIMEOUT, polling).await.is_err() {
            panic!("unexpected manifest errors: {last:#?}\n{}", self.log());
        }
        last
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) struct Watch {
    stream: Streaming<WatchPodsResponse>,
    pub(crate) pods: BTreeMap<String, Pod>,
}

impl Watch {
    /// Reads until the pods match at a `Synced`.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        matches: impl Fn(&BTreeMap<String, Pod>) -> bool,
    ) {
        let mut reading = async || {
            loop {
                let message = self
                    .stream
                    .message()
                    .await
                    .expect("the stream")
                    .expect("more");
                match message.change.expect("a change") {
                    Change::Reset(_) => self.pods.clear(),
                    Change::Upsert(pod) => {
                        drop(self.pods.insert(pod.r#ref.clone().expect("a ref").uid, pod))
                    }
                    Change::Remove(pod) => drop(self.pods.remove(&pod.uid)),
                    Change::Synced(_) if matches(&self.pods) => return,
                    Change::Synced(_) => {}
                }
            }
        };
        if timeout(TIMEOUT, reading()).await.is_err() {
            panic!("{what}: {:?}", self.names());
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        names(&self.pods)
    }
}

pub(crate) fn names(pods: &BTreeMap<String, Pod>) -> Vec<String> {
    let mut names: Vec<String> = pods
        .values()
        .map(|p| p.r#ref.clone().expect("a ref").name)
        .collect();
    names.sort();
    names
}
