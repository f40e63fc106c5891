//! The real process between peers made of real streams.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use futures::StreamExt;
use polylet_watch::{Heard, Update, follow};
use polylet_wire::pleg::v1::ContainerPhase;
use polylet_wire::prober::v1::Outcome;
use polylet_wire::status::v1::status_service_client::StatusServiceClient;
use polylet_wire::status::v1::{ListPodStatusesRequest, PodStatus, WatchPodStatusesRequest};
use polylet_wire::sync::v1::{PodSync, SyncPhase};
use serde_json::Value;
use tokio::time::timeout;

mod peers;
mod refusals;

use peers::facts::{TRACE, cause, filled, key, name, pod, state, sync, verdict};
use peers::{Life, Peers};

const PEERS: [&str; 4] = ["pod-config", "sync-coordinator", "pleg", "prober"];

struct Deaf;

impl Heard for Deaf {
    fn heard(&self, _: &'static str, _: &str, _: bool) {}
    fn lost(&self, _: &'static str, _: &str) {}
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

fn start_peers(dir: &Path, peers: &Peers) -> Vec<Option<Life>> {
    PEERS
        .iter()
        .map(|peer| Some(peers.serve(dir, peer)))
        .collect()
}

fn client(dir: &Path) -> StatusServiceClient<tonic::transport::Channel> {
    StatusServiceClient::new(polylet_kit::channel::plain(
        &dir.join("status-reporter.sock"),
    ))
}

fn watch(dir: &Path) -> impl futures::Stream<Item = Update<String, PodStatus>> + Unpin + use<> {
    let client = client(dir);
    follow(Deaf, move |resume_after| {
        let mut client = client.clone();
        async move {
            client
                .watch_pod_statuses(WatchPodStatusesRequest { resume_after })
                .await
        }
    })
}

async fn next(
    stream: &mut (impl futures::Stream<Item = Update<String, PodStatus>> + Unpin),
) -> Update<String, PodStatus> {
    timeout(Duration::from_secs(20), stream.next())
        .await
        .expect("an update in time")
        .unwrap()
}

/// Reads on until a status is as wanted.
async fn until(
    stream: &mut (impl futures::Stream<Item = Update<String, PodStatus>> + Unpin),
    wanted: impl Fn(&PodStatus) -> bool,
) -> PodStatus {
    loop {
        if let Update::Upsert(_, status) = next(stream).await
            && wanted(&status)
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
async fn from_first_sight_to_gone() {
    let dir = directory();
    let peers = Peers::new("1");
    peers.all_whole();
    let _serving = start_peers(dir.path(), &peers);
    let _reporter = Reporter::start(dir.path());
    let mut told = watch(dir.path());
    assert_eq!(next(&mut told).await, Update::Synced);

    peers.files.upsert("u".into(), pod());
    let first = until(&mut told, |_| true).await;
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
        .states
        .upsert("u".into(), state(ContainerPhase::Running));
    // Two streams, and either may be heard first.
    let both = |pod: &PodStatus| {
        let body = status(pod);
        body["phase"] == "Running" && body["startTime"].is_string()
    };
    let running = until(&mut told, both).await;
    assert!(!is_ready(&running));
    peers.verdicts.upsert(key(), verdict(Outcome::Success, 7));
    let ready = until(&mut told, is_ready).await;
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

    // Once Ready there are no more spans: the fact's own cause goes on as it is.
    peers.verdicts.upsert(key(), verdict(Outcome::Failure, 20));
    let unready = until(&mut told, |pod| !is_ready(pod)).await;
    assert_eq!(unready.cause, cause("b7ad6b7169203333"));

    let list = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest {
            pod_uid: "u".into(),
        })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(list.pods, [unready]);
    let other = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest {
            pod_uid: "v".into(),
        })
        .await
        .unwrap()
        .into_inner();
    assert!(other.pods.is_empty());

    peers.files.remove(&"u".into());
    peers.syncs.upsert(
        "u".into(),
        PodSync {
            last_manifest: pod().manifest,
            ..sync(SyncPhase::Terminating)
        },
    );
    peers
        .states
        .upsert("u".into(), state(ContainerPhase::Exited));
    until(&mut told, |pod| status(pod)["phase"] == "Succeeded").await;
    peers.states.remove(&"u".into());
    peers.syncs.upsert("u".into(), sync(SyncPhase::Reclaimed));
    loop {
        match next(&mut told).await {
            Update::Remove(uid) => break assert_eq!(uid, "u"),
            Update::Upsert(..) | Update::Synced => {}
            Update::Stale(why) => panic!("{why}"),
        }
    }
}

#[tokio::test]
async fn nothing_is_said_before_every_peer_was_heard() {
    let dir = directory();
    let peers = filled("1");
    let _serving = start_peers(dir.path(), &peers);
    let _reporter = Reporter::start(dir.path());
    let refused = client(dir.path())
        .list_pod_statuses(ListPodStatusesRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(
        refused.message().contains("prober") && refused.message().contains("manifest directory"),
        "{refused}"
    );
    peers.all_whole();
    // The very first thing to be told is the pod as it is: ready.
    let mut told = watch(dir.path());
    let Update::Upsert(_, first) = next(&mut told).await else {
        panic!("no status")
    };
    assert!(is_ready(&first));
}

#[tokio::test]
async fn restarts_flip_nothing() {
    let dir = directory();
    let peers = filled("1");
    peers.all_whole();
    let mut serving = start_peers(dir.path(), &peers);
    let mut reporter = Reporter::start(dir.path());
    let mut told = watch(dir.path());
    let before = until(&mut told, |pod| is_ready(pod) && pod.stale.is_empty()).await;

    // Each peer dies and comes back in another life, saying late what it holds.
    for (index, peer) in PEERS.iter().enumerate() {
        serving[index] = None;
        let stale = until(&mut told, |pod| !pod.stale.is_empty()).await;
        assert_eq!(
            (stale.stale.clone(), &stale.status),
            (vec![(*peer).to_owned()], &before.status)
        );
        let next_life = peers.reborn("2");
        serving[index] = Some(next_life.serve(dir.path(), peer));
        next_life.all_whole();
        let again = until(&mut told, |pod| pod.stale.is_empty()).await;
        assert_eq!(again.status, before.status, "{peer}");
    }

    // So does this process, killed, and with what it kept broken.
    for round in 0..3 {
        if round == 2 {
            std::fs::write(dir.path().join("status-reporter/statuses.json"), "{broken").unwrap();
        }
        drop(reporter);
        reporter = Reporter::start(dir.path());
        let mut fresh = watch(dir.path());
        let Update::Upsert(_, first) = next(&mut fresh).await else {
            panic!("no status")
        };
        assert_eq!(first.status, before.status, "round {round}");
    }
    assert!(
        dir.path()
            .join("status-reporter/statuses.json.broken")
            .exists()
    );
    drop(reporter);
}
