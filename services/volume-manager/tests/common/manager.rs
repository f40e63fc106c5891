//! The volume manager without its socket.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use polylet_kit::CancellationToken;
use polylet_model::PodUid;
use polylet_volume_manager::background::Spawn;
use polylet_volume_manager::core::desired_state::DeclareError;
use polylet_volume_manager::core::manifest;
use polylet_volume_manager::core::node_info::NodeInfo;
use polylet_volume_manager::core::reference_key::{ObjectKind, ReferenceKey};
use polylet_volume_manager::core::references::ObjectState;
use polylet_volume_manager::core::spec::Allocatable;
use polylet_volume_manager::core::state_of_world::{MountedVolume, StateOfWorld};
use polylet_volume_manager::core::sub_path::SubPath;
use polylet_volume_manager::core::tokens::{IssuedToken, PodTokenKey};
use polylet_volume_manager::csi::registry;
use polylet_volume_manager::csi::volume::CsiDrivers;
use polylet_volume_manager::driver_state::DriverState;
use polylet_volume_manager::event::Event;
use polylet_volume_manager::executor::OperationExecutor;
use polylet_volume_manager::input::{Caller, Input, Reply, SubPathRequest};
use polylet_volume_manager::reconstruct;
use polylet_volume_manager::run::EventLoop;
use polylet_volume_manager::subprocess::Subprocesses;
use polylet_volume_manager::subscriptions::{Subscribe, Subscriptions};
use polylet_watch::Store;
use polylet_wire::volume::v1::{PodVolumes, WatchPodVolumesResponse};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::{Root, TIMEOUT, all_mounted, pod_name};

const ALLOCATABLE: Allocatable = Allocatable {
    cpu_milli: 1000,
    memory: 64 << 20,
    ephemeral_storage: 1 << 30,
};

/// The subscriptions that have been started, by key.
type Started<K> = Rc<RefCell<BTreeMap<K, CancellationToken>>>;

/// One process instance of the service.
pub struct Manager {
    pub store: Store<PodUid, PodVolumes>,
    inputs: mpsc::Sender<Input>,
    drain: CancellationToken,
    pub objects: Started<ReferenceKey>,
    pub tokens: Started<PodTokenKey>,
    /// The messages of all events.
    pub events: watch::Sender<Vec<String>>,
    pub drivers: DriverState,
    client_id: String,
    sequence: Cell<u64>,
}

impl Manager {
    pub fn start(root: &Root, client_id: &str) -> Self {
        Self::with_deadline(root, client_id, Duration::from_secs(30))
    }

    /// Kills child processes after this time.
    pub fn with_deadline(root: &Root, client_id: &str, deadline: Duration) -> Self {
        let reconstructed = reconstruct::pods(&root.layout()).unwrap();
        let store = Store::new("test");
        let (inputs, queue) = mpsc::channel(64);
        let (objects, tokens) = (Started::default(), Started::default());
        let drivers = DriverState::default();
        let events = watch::Sender::<Vec<String>>::default();
        let emitted = events.clone();
        let subprocesses = Subprocesses::new(&polylet_volume_manager::DESCRIPTOR);
        let binary = env!("CARGO_BIN_EXE_polylet-volume-manager");
        let subprocesses = subprocesses.with_binary_and_deadline(binary, deadline);
        let (allocatable_updates, updates) = watch::channel(BTreeMap::new());
        let spawn: Spawn = Rc::new(|work| {
            tokio::task::spawn_local(work);
        });
        let event_loop = EventLoop::new(
            StateOfWorld::new(root.layout(), reconstructed).with_node_name("n"),
            store.clone(),
            OperationExecutor::new(root.layout(), subprocesses).with_drivers(CsiDrivers::new("n")),
            spawn.clone(),
            Subscriptions::new(record(&objects)),
            Subscriptions::new(record(&tokens)),
            inputs.clone(),
        )
        .with_events(Rc::new(move |event: Event| {
            emitted.send_modify(|all| all.push(event.message));
        }))
        .with_driver_state(drivers.clone())
        .with_allocatable_updates(allocatable_updates);
        let drain = CancellationToken::new();
        let registry = root.layout().plugins_registry();
        let registry = registry::run(registry, inputs.clone(), spawn, drain.clone(), updates);
        tokio::task::spawn_local(registry);
        tokio::task::spawn_local(event_loop.run(queue, drain.clone()));
        Self {
            store,
            inputs,
            drain,
            objects,
            tokens,
            events,
            drivers,
            client_id: client_id.to_owned(),
            sequence: Cell::new(0),
        }
    }

    pub fn stop(&self) {
        self.drain.cancel();
    }

    fn caller(&self) -> Caller {
        self.sequence.set(self.sequence.get() + 1);
        Caller {
            client_id: self.client_id.clone(),
            sequence: self.sequence.get(),
            cause: None,
        }
    }

    async fn send(&self, input: Input) {
        self.inputs.send(input).await.ok().unwrap();
    }

    async fn request<T>(&self, input: impl FnOnce(oneshot::Sender<T>) -> Input) -> T {
        let (reply, response) = oneshot::channel();
        self.send(input(reply)).await;
        response.await.unwrap()
    }

    pub async fn apply(&self, pod: &Value) -> Result<PodVolumes, DeclareError> {
        let spec = manifest::parse(&serde_json::to_vec(pod).unwrap(), ALLOCATABLE).unwrap();
        let name = pod_name(pod["metadata"]["uid"].as_str().unwrap());
        let caller = self.caller();
        self.request(|reply: Reply| Input::Apply(caller, name, Arc::new(spec), reply))
            .await
    }

    pub async fn release(&self, uid: &str) -> Result<PodVolumes, DeclareError> {
        let caller = self.caller();
        self.request(|reply: Reply| Input::Release(caller, pod_name(uid), reply))
            .await
    }

    pub async fn complete(&self, pods: u32) -> Result<(), DeclareError> {
        let client_id = self.client_id.clone();
        self.request(|reply| Input::Complete(client_id, pods, reply))
            .await
    }

    /// Binds subPaths (volume, path) for the container `c`; returns the mount points, or the message
    /// of its status.
    pub async fn sub_paths(
        &self,
        uid: &str,
        sub_paths: &[(&str, &str)],
    ) -> Result<Vec<PathBuf>, String> {
        let sub_path = |(mount_index, (volume, path)): (u32, &(&str, &str))| SubPath {
            mount_index,
            volume: (*volume).into(),
            path: (*path).into(),
        };
        let request = SubPathRequest {
            uid: uid.into(),
            container: "c".into(),
            sub_paths: (0..).zip(sub_paths).map(sub_path).collect(),
            cause: None,
        };
        let paths = self
            .request(|reply| Input::SubPaths(request, reply))
            .await?;
        Ok(paths.into_iter().map(PathBuf::from).collect())
    }

    /// Sets a local ConfigMap or Secret.
    pub async fn set_object(&self, kind: ObjectKind, name: &str, data: Value) {
        let key = ReferenceKey {
            kind,
            namespace: "ns".into(),
            name: name.into(),
            cluster: false,
        };
        let json = json!({"metadata": {"name": name}, "data": data});
        let state = ObjectState::from_json(kind, &serde_json::to_vec(&json).unwrap());
        self.set_object_state(key, state).await;
    }

    /// Sets an object of the API server.
    pub async fn set_cluster_object(
        &self,
        kind: ObjectKind,
        namespace: &str,
        name: &str,
        object: Value,
    ) {
        let key = ReferenceKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            cluster: true,
        };
        let state = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
        self.set_object_state(key, state).await;
    }

    pub async fn set_object_state(&self, key: ReferenceKey, state: ObjectState) {
        self.send(Input::Object(key, state)).await;
    }

    /// Sets the Node's `volumesInUse`.
    pub async fn set_volumes_in_use(&self, volumes: &[&str]) {
        let info = NodeInfo {
            volumes_in_use: volumes.iter().map(|name| (*name).to_owned()).collect(),
            ..NodeInfo::default()
        };
        self.send(Input::NodeInfo(info)).await;
    }

    /// The volumes that containers can use.
    pub async fn mounted_volumes(&self) -> Vec<MountedVolume> {
        self.request(Input::MountedVolumes).await
    }

    /// Ends a token request; the token is valid for `seconds`.
    pub async fn set_token(&self, key: &PodTokenKey, result: Result<&str, &str>, seconds: i64) {
        let expires_at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let issued = |token: &str| IssuedToken {
            token: token.as_bytes().to_vec().into(),
            expires_at,
        };
        let result = result.map(issued).map_err(str::to_owned);
        self.send(Input::Token(key.clone(), result)).await;
    }

    /// Waits until the status of a pod satisfies a condition.
    pub async fn wait_for(&self, uid: &str, condition: impl Fn(Option<&PodVolumes>) -> bool) {
        let mut changes = polylet_watch::serve::<WatchPodVolumesResponse>(self.store.clone(), None);
        let wait = async {
            while !condition(self.store.get(uid.to_owned().as_str()).as_ref()) {
                changes.next().await.unwrap().unwrap();
            }
        };
        if tokio::time::timeout(TIMEOUT, wait).await.is_err() {
            panic!("timeout: {:?}", self.store.get(uid.to_owned().as_str()));
        }
    }

    /// Waits for an event whose message starts with this text.
    pub async fn wait_event(&self, text: &str) {
        let mut events = self.events.subscribe();
        let emitted = events.wait_for(|all| all.iter().any(|event| event.starts_with(text)));
        if tokio::time::timeout(TIMEOUT, emitted).await.is_err() {
            panic!("no event {text:?}: {:?}", self.events.borrow());
        }
    }

    pub async fn wait_mounted(&self, uid: &str) {
        self.wait_for(uid, |pod| pod.is_some_and(all_mounted)).await;
    }

    pub async fn wait_removed(&self, uid: &str) {
        self.wait_for(uid, |pod| pod.is_none()).await;
    }

    /// Releases a pod and waits until nothing is left of it.
    pub async fn remove(&self, uid: &str) {
        self.release(uid).await.unwrap();
        self.wait_removed(uid).await;
    }
}

/// Records subscriptions instead of starting them.
fn record<K: Ord + 'static>(started: &Started<K>) -> Subscribe<K> {
    let started = started.clone();
    Rc::new(move |key, token| {
        started.borrow_mut().insert(key, token);
    })
}
