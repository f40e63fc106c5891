//! A full disk, and no file descriptors left: pods stay, the trouble is named, and all is well again
//! when there is room.

use std::fs;
use std::os::unix::net::UnixStream;

use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{GetInfoRequest, HealthCondition};
use polylet_wire::podconfig::v1::PodSource;
use rustix::process::Resource;
use tokio::time::timeout;

mod node;

use node::{Node, TIMEOUT, names};

type Lifecycle = LifecycleServiceClient<tonic::transport::Channel>;

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: i}}]\n"
    )
}

async fn conditions(lifecycle: &mut Lifecycle) -> Vec<HealthCondition> {
    let info = lifecycle.get_info(GetInfoRequest {}).await.expect("info");
    info.into_inner().conditions
}

/// Waits until the conditions match.
async fn until(lifecycle: &mut Lifecycle, matches: impl Fn(&[HealthCondition]) -> bool) {
    let mut last = Vec::new();
    let polling = async {
        loop {
            last = conditions(lifecycle).await;
            if matches(&last) {
                return;
            }
        }
    };
    if timeout(TIMEOUT, polling).await.is_err() {
        panic!("unexpected conditions: {last:#?}");
    }
}

#[tokio::test]
async fn pods_start_while_no_state_can_be_written() {
    let node = Node::with_directory();
    let mut lifecycle = LifecycleServiceClient::new(node.channel().await);
    let mut watch = node.watch(PodSource::File).await;
    watch.until("empty", |pods| pods.is_empty()).await;
    assert_eq!(conditions(&mut lifecycle).await, []);

    // Like a full disk, for this process alone.
    let before = node.limit(Resource::Fsize, 0);
    node.put("web.yaml", &pod("web"));
    let has_pod = |pods: &_| names(pods) == ["web-n1"];
    watch.until("the pod", has_pod).await;
    let state = node.path("state/pod-config/file.json");
    let path = state.display().to_string();
    let is_named = |all: &[HealthCondition]| {
        let of_file = |one: &HealthCondition| one.reason == "StateNotWritten" && one.object == path;
        all.iter().any(of_file)
    };
    until(&mut lifecycle, is_named).await;

    node.limit(Resource::Fsize, before);
    until(&mut lifecycle, |all| all.is_empty()).await;
    let written = fs::read_to_string(&state).expect("the state file");
    assert!(written.contains("web-n1"), "{written}");
}

#[tokio::test]
async fn pods_stay_while_no_file_can_be_opened() {
    let node = Node::with_directory();
    let mut lifecycle = LifecycleServiceClient::new(node.channel().await);
    let mut watch = node.watch(PodSource::File).await;
    node.put("web.yaml", &pod("web"));
    watch
        .until("the pod", |pods| names(pods) == ["web-n1"])
        .await;
    assert_eq!(conditions(&mut lifecycle).await, []);

    let before = node.limit(Resource::Nofile, 3);
    let _refused = UnixStream::connect(node.path("run/pod-config.sock")).expect("the backlog");
    node.put("other.yaml", &pod("other"));
    let reasons = ["ConnectionsNotAccepted", "ManifestsUnreadable"];
    let are_named = |all: &[HealthCondition]| {
        let is_set = |reason: &&str| all.iter().any(|one| one.reason == *reason);
        reasons.iter().all(is_set)
    };
    until(&mut lifecycle, are_named).await;

    node.limit(Resource::Nofile, before);
    watch
        .until("both pods", |pods| {
            assert!(
                names(pods).contains(&"web-n1".to_owned()),
                "a pod was removed"
            );
            pods.len() == 2
        })
        .await;
    until(&mut lifecycle, |all| all.is_empty()).await;
}
