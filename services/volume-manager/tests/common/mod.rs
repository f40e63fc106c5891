//! A root directory whose mounts go with it, and the one task over it.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use polylet_kit::CancellationToken;
use polylet_volume_manager::convert::CsiTold;
use polylet_volume_manager::core::declare::Refusal;
use polylet_volume_manager::core::layout::Layout;
use polylet_volume_manager::core::manifest;
use polylet_volume_manager::core::objects::{ObjectKey, ObjectKind, ObjectState};
use polylet_volume_manager::core::place::Place;
use polylet_volume_manager::core::spec::{Allocatable, PodName};
use polylet_volume_manager::core::state::{Mounted, State};
use polylet_volume_manager::core::sub_path::SubPath;
use polylet_volume_manager::core::tokens::{Issued, TokenKey};
use polylet_volume_manager::csi::registry;
use polylet_volume_manager::csi::volume::Drivers;
use polylet_volume_manager::job::Jobs;
use polylet_volume_manager::run::{From, Input, PartsWanted, Reply, Runner, Spawn, Told};
use polylet_volume_manager::volume::find;
use polylet_volume_manager::watches::Watches;
use polylet_volume_manager::worker::Worker;
use polylet_watch::Store;
use polylet_wire::volume::v1::{PodVolumes, VolumePhase, WatchPodVolumesResponse};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

pub const NODE: Allocatable = Allocatable {
    cpu_milli: 1000,
    memory: 64 << 20,
    ephemeral_storage: 1 << 30,
};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A root directory of its own.
pub struct Root {
    pub dir: tempfile::TempDir,
}

impl Root {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.dir.path())
    }

    pub fn pod(&self, uid: &str) -> PathBuf {
        self.layout().pod(uid)
    }

    /// All mounts below it, in the table's form less what changes by itself.
    pub fn mounts(&self) -> Vec<String> {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        let inside = self.dir.path().to_str().unwrap();
        table
            .lines()
            .filter(|line| line.contains(inside))
            // The directory itself is one, where mounts would not propagate otherwise.
            .filter(|line| line.split(' ').nth(4) != Some(inside))
            .map(str::to_owned)
            .collect()
    }

    /// Every file and directory under it with inode, mode, owner and time of change.
    pub fn everything(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        list(self.dir.path(), &mut all);
        all
    }
}

fn list(dir: &Path, all: &mut BTreeMap<PathBuf, String>) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let m = path.symlink_metadata().unwrap();
        let is = format!(
            "{} {:o} {}:{} {}.{}",
            m.ino(),
            m.mode(),
            m.uid(),
            m.gid(),
            m.ctime(),
            m.ctime_nsec()
        );
        if m.is_dir() {
            list(&path, all);
        }
        all.insert(path, is);
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        use rustix::mount::{UnmountFlags, unmount};
        for line in self.mounts().iter().rev() {
            if let Some(at) = line.split(' ').nth(4) {
                let _ = unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
            }
        }
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

/// One life of the service, without its socket.
pub struct Life {
    pub store: Store<String, PodVolumes>,
    inputs: mpsc::Sender<Input>,
    drain: CancellationToken,
    pub watched: Rc<RefCell<BTreeMap<ObjectKey, CancellationToken>>>,
    pub tokens: Rc<RefCell<BTreeMap<TokenKey, CancellationToken>>>,
    pub notices: Rc<RefCell<Vec<String>>>,
    pub csi: CsiTold,
    pub declarer: String,
    sequence: std::cell::Cell<u64>,
    objects: RefCell<BTreeMap<ObjectKey, ObjectState>>,
}

impl Life {
    pub fn start(root: &Root, declarer: &str) -> Self {
        Self::with_patience(root, declarer, Duration::from_secs(30))
    }

    /// A life whose children are given up so soon.
    pub fn with_patience(root: &Root, declarer: &str, patience: Duration) -> Self {
        let found = find::all(&root.layout()).unwrap();
        let store = Store::new("test");
        let (inputs, heard) = mpsc::channel(64);
        let watched: Rc<RefCell<BTreeMap<ObjectKey, CancellationToken>>> = Rc::default();
        let seen = watched.clone();
        let tokens: Rc<RefCell<BTreeMap<TokenKey, CancellationToken>>> = Rc::default();
        let asked = tokens.clone();
        let csi = CsiTold::default();
        let notices: Rc<RefCell<Vec<String>>> = Rc::default();
        let told = notices.clone();
        let jobs = Jobs::new(env!("CARGO_BIN_EXE_polylet-volume-manager").into());
        let jobs = jobs.within(patience);
        let (recounts, recounted) = watch::channel(BTreeMap::new());
        let runner = Runner::new(
            State::new(root.layout(), found).on("n"),
            store.clone(),
            Worker::new(root.layout(), jobs).with(Drivers::of("n")),
            Rc::new(|work| {
                tokio::task::spawn_local(work);
            }),
            Watches::new(Rc::new(move |key, token| {
                seen.borrow_mut().insert(key, token);
            })),
            Watches::new(Rc::new(move |key, token| {
                asked.borrow_mut().insert(key, token);
            })),
            inputs.clone(),
        )
        .telling(Rc::new(move |news: Told| {
            told.borrow_mut().push(news.message);
        }))
        .telling_of_drivers(csi.clone())
        .recounting(recounts);
        let drain = CancellationToken::new();
        let spawn: Spawn = Rc::new(|work| {
            tokio::task::spawn_local(work);
        });
        let registry = root.layout().plugins_registry();
        let drivers = registry::follow(registry, inputs.clone(), spawn, drain.clone(), recounted);
        tokio::task::spawn_local(drivers);
        tokio::task::spawn_local(runner.run(heard, drain.clone()));
        Self {
            store,
            inputs,
            drain,
            watched,
            tokens,
            notices,
            csi,
            declarer: declarer.to_owned(),
            sequence: std::cell::Cell::new(0),
            objects: RefCell::default(),
        }
    }

    pub fn end(&self) {
        self.drain.cancel();
    }

    fn from(&self) -> From {
        self.sequence.set(self.sequence.get() + 1);
        From {
            declarer: self.declarer.clone(),
            sequence: self.sequence.get(),
            cause: None,
        }
    }

    async fn ask(&self, input: impl FnOnce(Reply) -> Input) -> Result<PodVolumes, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(input(reply)).await.ok().unwrap();
        answer.await.unwrap()
    }

    pub async fn apply(&self, pod: &Value) -> Result<PodVolumes, Refusal> {
        let spec = manifest::read(&serde_json::to_vec(pod).unwrap(), NODE).unwrap();
        let (from, name) = (self.from(), name(pod["metadata"]["uid"].as_str().unwrap()));
        self.ask(|reply| Input::Apply(from, name, Arc::new(spec), reply))
            .await
    }

    pub async fn release(&self, uid: &str) -> Result<PodVolumes, Refusal> {
        let from = self.from();
        self.ask(|reply| Input::Release(from, name(uid), reply))
            .await
    }

    /// Asks for parts of volumes for the container `c`: the paths, or what its status says.
    pub async fn sub_paths(
        &self,
        uid: &str,
        parts: &[(&str, &str)],
    ) -> Result<Vec<PathBuf>, String> {
        let part = |(index, (volume, path)): (u32, &(&str, &str))| SubPath {
            mount_index: index,
            volume: (*volume).into(),
            path: (*path).into(),
        };
        let wanted = PartsWanted {
            uid: uid.into(),
            container: "c".into(),
            parts: (0..).zip(parts).map(part).collect(),
            cause: None,
        };
        let (reply, answer) = oneshot::channel();
        let input = Input::SubPaths(wanted, reply);
        self.inputs.send(input).await.ok().unwrap();
        let places = answer.await.unwrap()?;
        Ok(places.into_iter().map(PathBuf::from).collect())
    }

    pub async fn complete(&self, pods: u32) -> Result<(), Refusal> {
        let (reply, answer) = oneshot::channel();
        let input = Input::Complete(self.declarer.clone(), pods, reply);
        self.inputs.send(input).await.ok().unwrap();
        answer.await.unwrap()
    }

    pub async fn object(&self, kind: ObjectKind, name: &str, data: Option<Value>) {
        let key = ObjectKey {
            kind,
            namespace: "ns".into(),
            name: name.into(),
            cluster: false,
        };
        let state = match data {
            None => ObjectState::Absent,
            Some(data) => {
                let json = json!({"metadata": {"name": name}, "data": data});
                ObjectState::from_json(kind, &serde_json::to_vec(&json).unwrap())
            }
        };
        self.objects.borrow_mut().insert(key.clone(), state.clone());
        self.inputs
            .send(Input::Object(key, state))
            .await
            .ok()
            .unwrap();
    }

    /// An object of the cluster is this now.
    pub async fn tell(&self, kind: ObjectKind, namespace: &str, name: &str, object: Value) {
        let key = ObjectKey {
            kind,
            namespace: namespace.into(),
            name: name.into(),
            cluster: true,
        };
        let read = ObjectState::from_json(kind, &serde_json::to_vec(&object).unwrap());
        self.known(key, read).await;
    }

    /// An object is this now.
    pub async fn known(&self, key: ObjectKey, state: ObjectState) {
        let input = Input::Object(key, state);
        self.inputs.send(input).await.ok().unwrap();
    }

    /// The Node's status says that these volumes are in use.
    pub async fn in_use(&self, volumes: &[&str]) {
        let place = Place {
            in_use: volumes.iter().map(|name| (*name).to_owned()).collect(),
            ..Place::default()
        };
        self.inputs.send(Input::Placed(place)).await.ok().unwrap();
    }

    /// The volumes that containers can use.
    pub async fn all_mounted(&self) -> Vec<Mounted> {
        let (reply, answer) = oneshot::channel();
        self.inputs.send(Input::Mounted(reply)).await.ok().unwrap();
        answer.await.unwrap()
    }

    /// A token is issued, for so many seconds, or why not.
    pub async fn token(&self, key: &TokenKey, answer: Result<&str, &str>, seconds: i64) {
        let expires_at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        let issued = |token: &str| Issued {
            token: token.as_bytes().to_vec().into(),
            expires_at,
        };
        let answer = answer.map(issued).map_err(str::to_owned);
        let input = Input::Token(key.clone(), answer);
        self.inputs.send(input).await.ok().unwrap();
    }

    /// Waits until the pod's volumes are as wanted.
    pub async fn until(&self, uid: &str, what: impl Fn(Option<&PodVolumes>) -> bool) {
        let mut told = polylet_watch::serve::<WatchPodVolumesResponse>(self.store.clone(), None);
        let come = async {
            while !what(self.store.get(&uid.to_owned()).as_ref()) {
                told.next().await.unwrap().unwrap();
            }
        };
        if tokio::time::timeout(PATIENCE, come).await.is_err() {
            panic!("never came: {:?}", self.store.get(&uid.to_owned()));
        }
    }

    pub async fn mounted(&self, uid: &str) {
        self.until(uid, |pod| pod.is_some_and(all_mounted)).await;
    }

    pub async fn gone(&self, uid: &str) {
        self.until(uid, |pod| pod.is_none()).await;
    }
}

/// Waits for what only the file system or another thread can tell.
pub async fn eventually(what: &str, is: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !is() {
        assert!(tokio::time::Instant::now() < deadline, "{what}: never");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn all_mounted(pod: &PodVolumes) -> bool {
    let mounted = i32::from(VolumePhase::Mounted);
    !pod.volumes.is_empty() && pod.volumes.iter().all(|volume| volume.phase == mounted)
}

pub fn name(uid: &str) -> PodName {
    PodName {
        uid: uid.into(),
        namespace: "ns".into(),
        name: format!("pod-{uid}"),
    }
}

/// A pod that mounts all of these volumes.
pub fn pod(uid: &str, volumes: Value) -> Value {
    let names = volumes
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v["name"].clone());
    let mounts: Vec<_> = names
        .map(|name| json!({"name": name, "mountPath": "/m"}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{uid}"), "namespace": "ns", "uid": uid, "labels": {"a": "1"},
            "annotations": {"kubernetes.io/config.source": "file"}},
        "spec": {"volumes": volumes, "containers": [{"name": "c", "volumeMounts": mounts}]},
    })
}

/// The same of the cluster, with this volume.
pub fn of_cluster(uid: &str, volume: Value) -> Value {
    let mut pod = pod(uid, json!([volume]));
    pod["metadata"]["annotations"] = json!({"kubernetes.io/config.source": "api"});
    pod
}

/// Runs a test's future as the service's tasks run.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Mounting takes root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
