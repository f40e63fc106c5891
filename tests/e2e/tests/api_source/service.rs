//! pod-config as a single process, and the streams it serves.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polylet_harness::node::default_bin_dir;
use polylet_wire::podconfig::v1::object_service_client::ObjectServiceClient;
use polylet_wire::podconfig::v1::pod_config_service_client::PodConfigServiceClient;
use polylet_wire::podconfig::v1::{
    ListManifestErrorsRequest, ManifestError, Pod, PodSource, WatchNodeRequest, WatchNodeResponse,
    WatchObjectRequest, WatchObjectResponse, WatchPodsRequest, watch_node_response,
    watch_object_response, watch_pods_response,
};
use serde_json::Value;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Service {
    dir: PathBuf,
    child: Option<Child>,
    /// One connection, as other services open it.
    channel: OnceCell<Channel>,
}

impl Service {
    /// The service of node `n1` below `dir`, not started yet.
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

    pub(crate) fn state_file(&self, name: &str) -> String {
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
        let started = Instant::now();
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) if started.elapsed() > TIMEOUT => panic!("{error}: {}", self.log()),
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
            current: BTreeMap::new(),
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

    /// Waits for the expected manifest errors and returns the time it took.
    pub(crate) async fn problems(&self, condition: impl Fn(&[ManifestError]) -> bool) -> Duration {
        let mut client = self.config().await;
        let started = Instant::now();
        loop {
            let response = client
                .list_manifest_errors(ListManifestErrorsRequest {})
                .await
                .unwrap();
            let errors = response.into_inner().errors;
            if condition(&errors) {
                return started.elapsed();
            }
            assert!(started.elapsed() < TIMEOUT, "{errors:?}\n{}", self.log());
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

/// A replica of a pod stream.
pub(crate) struct Pods {
    stream: Streaming<polylet_wire::podconfig::v1::WatchPodsResponse>,
    pub(crate) current: BTreeMap<String, Pod>,
    /// Number of updates received.
    pub(crate) changes: u32,
}

impl Pods {
    /// Reads until the synced pods are as expected.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        condition: impl Fn(&BTreeMap<String, Pod>) -> bool,
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
                    Change::Reset(_) => self.current.clear(),
                    Change::Upsert(pod) => {
                        self.changes += 1;
                        self.current.insert(pod.r#ref.clone().unwrap().name, pod);
                    }
                    Change::Remove(pod) => {
                        self.changes += 1;
                        self.current
                            .retain(|_, existing| existing.r#ref.as_ref().unwrap().uid != pod.uid);
                    }
                    Change::Synced(_) if condition(&self.current) => return,
                    Change::Synced(_) => {}
                }
            }
        };
        if timeout(TIMEOUT, reading).await.is_err() {
            panic!("{what}: {:?}", self.current);
        }
    }

    pub(crate) fn manifest(&self, name: &str) -> Value {
        serde_json::from_slice(&self.current[name].manifest).unwrap()
    }
}

/// A watch of one object.
#[derive(Debug, PartialEq)]
pub(crate) enum ObjectState {
    Manifest(Value),
    Absent,
    Unknown(String),
}

/// The object's next state.
pub(crate) async fn next_state(stream: &mut Streaming<WatchObjectResponse>) -> ObjectState {
    let message = timeout(TIMEOUT, stream.message()).await.expect("in time");
    match message.unwrap().unwrap().state.unwrap() {
        watch_object_response::State::Manifest(json) => {
            ObjectState::Manifest(serde_json::from_slice(&json).unwrap())
        }
        watch_object_response::State::Absent(_) => ObjectState::Absent,
        watch_object_response::State::Unknown(unknown) => ObjectState::Unknown(unknown.message),
    }
}

/// The Node's next state, and whether it is stale.
pub(crate) async fn next_node(stream: &mut Streaming<WatchNodeResponse>) -> (Option<Value>, bool) {
    let message = timeout(TIMEOUT, stream.message()).await.expect("in time");
    let message = message.unwrap().unwrap();
    let stale = message.stale_since.is_some();
    match message.state.unwrap() {
        watch_node_response::State::Manifest(json) => {
            (Some(serde_json::from_slice(&json).unwrap()), stale)
        }
        watch_node_response::State::Absent(_) => (None, stale),
    }
}
