//! The real process with peers on real sockets.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use futures::StreamExt;
use polylet_model::PodUid;
use polylet_watch::{StreamObserver, Update, follow};
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::prober::v1::Outcome;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus, WatchPodStatusesRequest};
use polylet_wire::sync::v1::{PodSync, SyncPhase};
use serde_json::Value;
use tokio::time::timeout;

mod api_failures;
mod devices;
mod peers;

use peers::facts::{TRACE, cause, filled, key, name, pod, probe, state, sync};
use peers::{PeerProcess, Peers};

/// The peers that statuses wait for.
const PEERS: [&str; 4] = ["pod-config", "sync-coordinator", "pleg", "prober"];

/// Ignores the state of the stream.
struct IgnoredPeer;

impl StreamObserver for IgnoredPeer {
    fn received(&self, _: &'static str, _: &str, _: bool) {}
    fn lost(&self, _: &'static str, _: &str) {}
    fn value_lost(&self, _: &'static str) {}
    fn unknown(&self, _: &'static str, _: Option<&'static str>) {}
}

/// The process under test, killed with the value.
struct Reporter(Child);

impl Reporter {
    fn start(dir: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_polylet-status-reporter");
        Self(
            Command::new(program)
                .arg("--config")
                .arg(dir.join("config.yaml"))
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let config = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         containerRuntimeEndpoint: unix://{at}/nothing.sock\n---\n\
         apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\n\
         runDirectory: {at}\nstateDirectory: {at}/state\nnodeIP: 192.0.2.7\n"
    );
    std::fs::write(dir.path().join("config.yaml"), config).unwrap();
    dir
}

fn start_peers(dir: &Path, peers: &Peers) -> Vec<Option<PeerProcess>> {
    PEERS
        .iter()
        .map(|peer| Some(peers.serve(dir, peer)))
        .collect()
}

fn client(dir: &Path) -> StatusServiceClient<tonic::transport::Channel> {
    StatusServiceClient::new(polylet_kit::channel::unix(
        &dir.join("status-reporter.sock"),
    ))
}

fn watch(dir: &Path) -> impl futures::Stream<Item = Update<PodUid, PodStatus>> + Unpin + use<> {
    let client = client(dir);
    follow(IgnoredPeer, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_statuses(WatchPodStatusesRequest {
                    resume_after,
                    ..WatchPodStatusesRequest::default()
                })
                .await
        }
    })
}

async fn next(
    stream: &mut (impl futures::Stream<Item = Update<PodUid, PodStatus>> + Unpin),
) -> Update<PodUid, PodStatus> {
    timeout(Duration::from_secs(20), stream.next())
        .await
        .expect("an update in time")
        .unwrap()
}

/// Reads until a status matches.
async fn until(
    stream: &mut (impl futures::Stream<Item = Update<PodUid, PodStatus>> + Unpin),
    matches: impl Fn(&PodStatus) -> bool,
) -> PodStatus {
    loop {
        if let Update::Upsert(_, status) = next(stream).await
            && matches(&status)
        {
            return status;
        }
    }
}

fn status(pod: &PodStatus) -> Value {
    serde_json::from_slice(&pod.status).unwrap()
}

fn condition(pod: &PodStatus, type_: &str) -> Value {
    let status = status(pod);
    status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .find(|c| c["type"] == type_)
        .unwrap()
        .clone()
}

fn is_ready(pod: &PodStatus) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

#[tokio::test]
async fn pod_is_published_from_creation_to_removal() {
    let dir = directory();
    let peers = Peers::new("1");
    peers.mark_all_synced();
    let _serving = start_peers(dir.path(), &peers);
    let _reporter = Reporter::start(dir.path());
    let mut updates = watch(dir.path());
    assert_eq!(next(&mut updates).await, Update::Synced);

    peers.files.upsert("u".into(), pod());
    let first = until(&mut updates, |_| true).await;
    assert_eq!(
        status(&first)["containerStatuses"][0]["state"]["waiting"]["reason"],
        "ContainerCreating"
    );
    assert_eq!(
        (first.r#ref.clone(), &first.manifest),
        (name(), &pod().manifest)
    );
    let trace = &first.cause.as_ref().unwrap().traceparent;
    assert!(
        trace.contains(TRACE) && !trace.contains("b7ad6b7169203331"),
        "a span of its own in the pod's trace: {trace}"
    );

    peers.syncs.upsert("u".into(), sync(SyncPhase::Syncing));
    peers
        .runtime_states
        .upsert("u".into(), state(ContainerPhase::Running));
    // Two streams, received in any order.
    let both = |pod: &PodStatus| {
        let body = status(pod);
        body["phase"] == "Running" && body["startTime"].is_string()
    };
    let running = until(&mut updates, both).await;
    assert!(!is_ready(&running));
    peers.probes.upsert(key(), probe(Outcome::Success, 7));
    let ready = until(&mut updates, is_ready).await;
    let body = status(&ready);
    assert_eq!(body["podIP"], "10.1.0.2");
    assert_eq!(body["hostIP"], "192.0.2.7");
    assert_eq!(body["startTime"], "2023-11-14T22:13:20Z");
    assert_eq!(
        body["containerStatuses"][0]["containerID"],
        "containerd://c1"
    );
    assert_eq!(
        condition(&ready, "Ready")["lastTransitionTime"],
        "2023-11-14T22:13:27Z"
    );
    assert!(ready.cause.as_ref().unwrap().traceparent.contains(TRACE));

    // Once Ready there are no more spans: the cause of the fact is passed on.
    peers.probes.upsert(key(), probe(Outcome::Failure, 20));
    let unready = until(&mut updates, |pod| !is_ready(pod)).await;
    assert_eq!(unready.cause, cause("b7ad6b7169203333"));

    let list = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest {
            pod_uid: "u".into(),
            ..ListPodStatusesRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.pods, [unready]);
    let other = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest {
            pod_uid: "v".into(),
            ..ListPodStatusesRequest::default()
        })
        .await
        .unwrap()
        .into_inner();
    assert!(other.pods.is_empty());

    peers.files.remove("u");
    peers.syncs.upsert(
        "u".into(),
        PodSync {
            last_manifest: pod().manifest,
            ..sync(SyncPhase::Terminating)
        },
    );
    peers
        .runtime_states
        .upsert("u".into(), state(ContainerPhase::Exited));
    until(&mut updates, |pod| status(pod)["phase"] == "Succeeded").await;
    peers.runtime_states.remove("u");
    peers.syncs.upsert("u".into(), sync(SyncPhase::CleanedUp));
    loop {
        match next(&mut updates).await {
            Update::Remove(uid) => break assert_eq!(uid, "u"),
            Update::Upsert(..) | Update::Synced => {}
            Update::Stale(why) => panic!("{why}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_published_before_all_peers_synced() {
    let dir = directory();
    let peers = filled("1");
    let _serving = start_peers(dir.path(), &peers);
    let _reporter = Reporter::start(dir.path());
    let error = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::Unavailable);
    assert!(
        error.message().contains("prober") && error.message().contains("manifest directory"),
        "{error}"
    );
    peers.mark_all_synced();
    // The first published status is already ready.
    let mut updates = watch(dir.path());
    let Update::Upsert(_, first) = next(&mut updates).await else {
        panic!("no status")
    };
    assert!(is_ready(&first));
}

#[tokio::test]
async fn restarts_change_no_status() {
    let dir = directory();
    let peers = filled("1");
    peers.mark_all_synced();
    let mut serving = start_peers(dir.path(), &peers);
    let mut reporter = Reporter::start(dir.path());
    let mut updates = watch(dir.path());
    let before = until(&mut updates, |pod| is_ready(pod) && pod.stale.is_empty()).await;

    // Each peer is restarted and syncs late.
    for (index, peer) in PEERS.iter().enumerate() {
        serving[index] = None;
        let stale = until(&mut updates, |pod| !pod.stale.is_empty()).await;
        assert_eq!(
            (stale.stale.clone(), &stale.status),
            (vec![(*peer).to_owned()], &before.status)
        );
        let restarted = peers.restarted("2");
        serving[index] = Some(restarted.serve(dir.path(), peer));
        restarted.mark_all_synced();
        let again = until(&mut updates, |pod| pod.stale.is_empty()).await;
        assert_eq!(again.status, before.status, "{peer}");
    }

    // This process is killed and restarted, the last time with a corrupt state file.
    for attempt in 0..3 {
        if attempt == 2 {
            std::fs::write(dir.path().join("status-reporter/statuses.json"), "{broken").unwrap();
        }
        drop(reporter);
        reporter = Reporter::start(dir.path());
        let mut fresh = watch(dir.path());
        let Update::Upsert(_, first) = next(&mut fresh).await else {
            panic!("no status")
        };
        assert_eq!(first.status, before.status, "attempt {attempt}");
    }
    assert!(
        dir.path()
            .join("status-reporter/statuses.json.broken")
            .exists()
    );
    drop(reporter);
}

/// A crash between the removal of a pod and the write of the file leaves the pod there.
#[tokio::test]
async fn pods_that_were_removed_meanwhile_leave_the_state_file() {
    let dir = directory();
    let peers = filled("1");
    let _serving = start_peers(dir.path(), &peers);
    let file = dir.path().join("status-reporter/statuses.json");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    for left in [
        r#"{"statuses": {"gone": {}}, "started": ["gone"]}"#,
        r#"{"statuses": {}, "started": ["gone"]}"#,
    ] {
        let content = format!(r#"{{"version": 1, "data": {left}}}"#);
        std::fs::write(&file, content).unwrap();
        let reporter = Reporter::start(dir.path());
        peers.mark_all_synced();
        let removed = async {
            while std::fs::read_to_string(&file).unwrap().contains("gone") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let removed = timeout(Duration::from_secs(20), removed).await;
        removed.expect("a file without the pod that is gone");
        drop(reporter);
    }
}
