//! Replacement of the manifest directory and of files in it while their pods run.

use std::collections::BTreeMap;
use std::fs;

use polylet_wire::podconfig::v1::{Pod, PodSource};

mod node;

use node::Node;

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: i}}]\n"
    )
}

#[tokio::test]
async fn replacing_the_directory_stops_no_pod() {
    let mut node = Node::new("staticPodPath: MANIFESTS\nfileCheckFrequency: 60s");
    let config = node.path("config.yaml");
    let text = fs::read_to_string(&config).expect("config");
    let directory = node.manifests().display().to_string();
    fs::write(&config, text.replace("MANIFESTS", &directory)).expect("config");
    node.start();
    node.put("web.yaml", &pod("web"));
    let mut watch = node.watch(PodSource::File).await;
    watch.until("the pod", |pods| pods.len() == 1).await;
    let uid = watch.pods.keys().next().expect("a pod").clone();

    let next = node.path("next");
    fs::create_dir(&next).expect("another directory");
    fs::write(next.join("web.yaml"), pod("web")).expect("the same pod");
    fs::write(next.join("more.yaml"), pod("more")).expect("another pod");
    fs::rename(node.manifests(), node.path("old")).expect("moved away");
    // The gap is reported and stops no pod.
    node.errors(|all| all.iter().any(|e| e.message.contains("does not exist")))
        .await;
    fs::rename(&next, node.manifests()).expect("moved in");
    watch
        .until("the pods of the new directory", |pods| {
            assert!(pods.contains_key(&uid), "the pod was removed");
            pods.len() == 2
        })
        .await;
}

/// When the pod of a name was removed before it was added again, in nanoseconds; `None` without the pod.
fn removed_at(pods: &BTreeMap<String, Pod>, name: &str) -> Option<Option<i128>> {
    let is_named = |pod: &&Pod| pod.r#ref.as_ref().is_some_and(|pod| pod.name == name);
    let pod = pods.values().find(is_named)?;
    let nanoseconds =
        |at: &prost_types::Timestamp| i128::from(at.seconds) * 1_000_000_000 + i128::from(at.nanos);
    Some(pod.removed_at.as_ref().map(nanoseconds))
}

#[tokio::test]
async fn pod_of_a_file_that_is_deleted_and_written_again_was_removed() {
    let mut node = Node::with_directory();
    let path = node.manifests().join("web.yaml");
    let write_again = || {
        fs::remove_file(&path).expect("deleted");
        fs::write(&path, pod("web")).expect("written again");
    };
    node.put("web.yaml", &pod("web"));
    node.put("other.yaml", &pod("other"));
    let mut watch = node.watch(PodSource::File).await;
    watch.until("the pods", |pods| pods.len() == 2).await;
    let uids: Vec<String> = watch.pods.keys().cloned().collect();

    node.put("web.yaml", &pod("web"));
    fs::write(&path, pod("web")).expect("written in place");
    node.put("marker.yaml", &pod("marker"));
    watch.until("the marker", |pods| pods.len() == 3).await;
    assert_eq!(removed_at(&watch.pods, "web-n1"), Some(None), "replaced");

    write_again();
    let is_again = |pods: &BTreeMap<String, Pod>| removed_at(pods, "web-n1").flatten().is_some();
    watch.until("the pod again", is_again).await;
    let first = removed_at(&watch.pods, "web-n1");
    assert_eq!(removed_at(&watch.pods, "other-n1"), Some(None));
    assert!(uids.iter().all(|uid| watch.pods.contains_key(uid)));

    // Killed at once: what it has served is on disk.
    node.kill();
    write_again();
    node.start();
    let mut watch = node.watch(PodSource::File).await;
    watch.until("the pods", |pods| pods.len() == 3).await;
    let after = removed_at(&watch.pods, "web-n1");
    assert_eq!(after, first, "nobody saw the second removal");

    write_again();
    let is_later = |pods: &BTreeMap<String, Pod>| removed_at(pods, "web-n1") > first;
    watch.until("another removal", is_later).await;
}
