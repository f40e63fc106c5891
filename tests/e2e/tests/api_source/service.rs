//! pod-config alone, as a process of its own, and what it tells.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylet_harness::node::default_bin_dir;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{
    ListProblemsRequest, Pod, PodSource, Problem, WatchNodeRequest, WatchNodeResponse,
    WatchObjectRequest, WatchObjectResponse, WatchPodsRequest, watch_node_response,
    watch_object_response, watch_pods_response,
};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    dir: PathBuf,
    child: Option<Child>,
    /// One connection, as other services have it.
    channel: OnceCell<Channel>,
}

impl Service {
    /// A service of the node `n1` below `dir`; not started yet.
    pub(crate) fn new(dir: &Path, kubeconfig: &Path) -> Service {
        let dir = dir.join("pod-config");
        fs::create_dir_all(&dir).unwrap();
        let (at, kubeconfig) = (dir.display(), kubeconfig.display());
        let config = format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\n\
             apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n1\n\
             kubeconfig: {kubeconfig}\nrunDirectory: {at}/run\nstateDirectory: {at}/state\n\
             rootDirectory: {at}/root\n"
        );
        fs::write(dir.join("config.yaml"), config).unwrap();
        Service {
            dir,
            child: None,
            channel: OnceCell::new(),
        }
    }

    pub(crate) fn start(&mut self) {
        self.channel = OnceCell::new();
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join("log"))
            .unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(default_bin_dir().join("polylet-pod-config"))
            .arg("--config")
            .arg(self.dir.join("config.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn kept(&self, name: &str) -> String {
        let path = self.dir.join("state/pod-config").join(name);
        fs::read_to_string(path).unwrap_or_default()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    async fn channel(&self) -> Channel {
        self.channel.get_or_init(|| self.connect()).await.clone()
    }

    async fn connect(&self) -> Channel {
        let socket = self.dir.join("run/pod-config.sock");
        let address = format!("unix:{}", socket.display());
        let endpoint = Endpoint::from_shared(address).unwrap();
        let begun = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) if begun.elapsed() > PATIENCE => panic!("{error}: {}", self.log()),
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    pub(crate) async fn config(&self) -> PodConfigServiceClient<Channel> {
        PodConfigServiceClient::new(self.channel().await)
    }

    pub(crate) async fn objects(&self) -> ObjectServiceClient<Channel> {
        ObjectServiceClient::new(self.channel().await)
    }

    pub(crate) async fn pods(&self, include_status: bool) -> Pods {
        let request = WatchPodsRequest {
            source: PodSource::Api.into(),
            include_status,
            ..WatchPodsRequest::default()
        };
        let stream = self.config().await.watch_pods(request).await.unwrap();
        Pods {
            stream: stream.into_inner(),
            held: BTreeMap::new(),
            changes: 0,
        }
    }

    pub(crate) async fn node(&self) -> Streaming<WatchNodeResponse> {
        let stream = self.config().await.watch_node(WatchNodeRequest {}).await;
        stream.unwrap().into_inner()
    }

    pub(crate) async fn object(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Streaming<WatchObjectResponse> {
        let request = WatchObjectRequest {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            source: PodSource::Api.into(),
        };
        let stream = self.objects().await.watch_object(request).await;
        stream.unwrap().into_inner()
    }

    /// Waits until the problems are as wanted; how long that took.
    pub(crate) async fn problems(&self, wanted: impl Fn(&[Problem]) -> bool) -> Duration {
        let mut client = self.config().await;
        let begun = Instant::now();
        loop {
            let told = client.list_problems(ListProblemsRequest {}).await.unwrap();
            let told = told.into_inner().problems;
            if wanted(&told) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < PATIENCE, "{told:?}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// A stream of pods, folded.
pub(crate) struct Pods {
    stream: Streaming<polylet_wire::podconfig::v1::WatchPodsResponse>,
    pub(crate) held: BTreeMap<String, Pod>,
    /// Pods told or removed.
    pub(crate) changes: u32,
}

impl Pods {
    /// Reads until the pods, once in step, are as wanted.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        wanted: impl Fn(&BTreeMap<String, Pod>) -> bool,
    ) {
        let reading = async {
            loop {
                use watch_pods_response::Change;
                match self
                    .stream
                    .message()
                    .await
                    .unwrap()
                    .unwrap()
                    .change
                    .unwrap()
                {
                    Change::Reset(_) => self.held.clear(),
                    Change::Upsert(pod) => {
                        self.changes += 1;
                        self.held.insert(pod.r#ref.clone().unwrap().name, pod);
                    }
                    Change::Remove(pod) => {
                        self.changes += 1;
                        self.held
                            .retain(|_, held| held.r#ref.as_ref().unwrap().uid != pod.uid);
                    }
                    Change::Synced(_) if wanted(&self.held) => return,
                    Change::Synced(_) => {}
                }
            }
        };
        if timeout(PATIENCE, reading).await.is_err() {
            panic!("{what}: {:?}", self.held);
        }
    }

    pub(crate) fn manifest(&self, name: &str) -> Value {
        serde_json::from_slice(&self.held[name].manifest).unwrap()
    }
}

/// What is told of an object.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Manifest(Value),
    Absent,
    Unknown(String),
}

/// The next that is told of an object.
pub(crate) async fn told(stream: &mut Streaming<WatchObjectResponse>) -> Told {
    let message = timeout(PATIENCE, stream.message()).await.expect("in time");
    match message.unwrap().unwrap().state.unwrap() {
        watch_object_response::State::Manifest(json) => {
            Told::Manifest(serde_json::from_slice(&json).unwrap())
        }
        watch_object_response::State::Absent(_) => Told::Absent,
        watch_object_response::State::Unknown(unknown) => Told::Unknown(unknown.message),
    }
}

/// The next that is told of the node, and whether it is stale.
pub(crate) async fn node_told(stream: &mut Streaming<WatchNodeResponse>) -> (Option<Value>, bool) {
    let message = timeout(PATIENCE, stream.message()).await.expect("in time");
    let message = message.unwrap().unwrap();
    let stale = message.stale_since.is_some();
    match message.state.unwrap() {
        watch_node_response::State::Manifest(json) => {
            (Some(serde_json::from_slice(&json).unwrap()), stale)
        }
        watch_node_response::State::Absent(_) => (None, stale),
    }
}
