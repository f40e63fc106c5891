use k8s_openapi::api::core::v1::PodStatus;
use serde_json::json;

use super::*;

fn manifest(name: &str, hash: &str) -> Manifest {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": hash,
            "annotations": { "kubernetes.io/config.hash": hash, "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-01T00:00:00Z" },
        },
        "spec": { "containers": [{ "name": "a", "image": "x" }], "nodeName": "node" },
    });
    Manifest::from_json(pod.to_string().as_bytes()).unwrap()
}

fn mirror(name: &str, source_hash: &str, deleting: bool) -> MirrorPod {
    MirrorPod {
        uid: "m".into(),
        namespace: "n".into(),
        name: name.into(),
        source_hash: source_hash.into(),
        deleting,
        status: Some(SharedStatus::from(PodStatus::default())),
    }
}

fn node(deleting: bool) -> Option<NodeRef> {
    Some(NodeRef {
        name: "node".into(),
        uid: "node-uid".into(),
        deleting,
    })
}

fn due(mirrors: &mut MirrorPodManager, ms: u64) -> Vec<MirrorRequest> {
    let mut unlimited = TokenBucket::new(0.0, 0.0, Duration::ZERO);
    mirrors.take_due(&mut unlimited, Duration::from_millis(ms))
}

#[test]
fn a_status_that_came_from_this_node_is_in_memory_once() {
    let mut mirrors = MirrorPodManager::default();
    let own = SharedStatus::from(PodStatus::default());
    let other = SharedStatus::from(PodStatus {
        message: Some("other".into()),
        ..PodStatus::default()
    });
    mirrors.set_static_pod(&"u".into(), Some((manifest("p", "h"), true)));
    for (status, is_shared) in [(&own, true), (&other, false)] {
        let mirror = MirrorPod {
            status: Some(SharedStatus::from(PodStatus::clone(status))),
            ..mirror("p", "h", false)
        };
        mirrors.set_mirror(&"m".into(), Some(mirror));
        mirrors.share_statuses(|uid| (*uid == "u").then_some(&own));
        let (_, found) = mirrors.api_statuses().next().unwrap();
        let found = found.unwrap().status;
        assert_eq!(found.is_same(&own), is_shared);
        assert_eq!(found, *status);
    }
}

#[test]
fn mirror_pods_follow_static_pods() {
    let desired = |hash: &str| Some((manifest("p", hash), true));
    let terminating = |hash: &str| Some((manifest("p", hash), false));
    // Static pods, mirror pod, node; whether one is deleted, whether one is created.
    #[allow(clippy::type_complexity)]
    let cases: [(
        &str,
        Vec<Option<(Manifest, bool)>>,
        Option<MirrorPod>,
        Option<NodeRef>,
        Option<(bool, bool)>,
    ); 11] = [
        (
            "new",
            vec![desired("h")],
            None,
            node(false),
            Some((false, true)),
        ),
        (
            "up to date",
            vec![desired("h")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        ("no node yet", vec![desired("h")], None, None, None),
        (
            "node being deleted",
            vec![desired("h")],
            None,
            node(true),
            None,
        ),
        (
            "edited",
            vec![desired("h2")],
            Some(mirror("p", "h", false)),
            node(false),
            Some((true, true)),
        ),
        (
            "edited, no node",
            vec![desired("h2")],
            Some(mirror("p", "h", false)),
            None,
            Some((true, false)),
        ),
        (
            "deleted by a user",
            vec![desired("h")],
            Some(mirror("p", "h", true)),
            node(false),
            Some((true, true)),
        ),
        (
            "orphan",
            vec![],
            Some(mirror("p", "h", false)),
            node(false),
            Some((true, false)),
        ),
        (
            "terminating",
            vec![terminating("h")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        (
            "replacement waits",
            vec![terminating("h"), desired("h2")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        (
            "other name",
            vec![desired("h")],
            Some(mirror("q", "h", false)),
            node(false),
            Some((false, true)),
        ),
    ];
    for (what, statics, mirror_pod, node, expected) in cases {
        let mut mirrors = MirrorPodManager::default();
        for pod in statics.into_iter().flatten() {
            mirrors.set_static_pod(pod.0.uid(), Some(pod.clone()));
        }
        mirrors.set_mirror(&"m".into(), mirror_pod);
        mirrors.set_node(node);
        mirrors.set_pods_synced(true);
        assert_eq!(
            due(&mut mirrors, 0),
            [],
            "{what}: before mirror pods synced"
        );
        mirrors.mark_mirrors_synced();
        let of_p = due(&mut mirrors, 0)
            .into_iter()
            .find(|request| request.name == "p");
        let done = of_p.map(|request| (request.delete.is_some(), request.create.is_some()));
        assert_eq!(done, expected, "{what}");
    }
}

#[test]
fn orphan_stays_until_pods_synced() {
    let mut mirrors = MirrorPodManager::default();
    mirrors.set_mirror(&"m".into(), Some(mirror("p", "h", false)));
    mirrors.mark_mirrors_synced();
    assert_eq!(due(&mut mirrors, 0), []);
    mirrors.set_pods_synced(true);
    assert_eq!(due(&mut mirrors, 0)[0].delete, Some("m".into()));
}

#[test]
fn mirror_pod_is_the_pod_owned_by_its_node() {
    let body = body(&manifest("p", "h"), &node(false).unwrap()).unwrap();
    let metadata = &body["metadata"];
    assert_eq!(metadata["annotations"]["kubernetes.io/config.mirror"], "h");
    assert_eq!(metadata["annotations"]["kubernetes.io/config.hash"], "h");
    assert_eq!(
        metadata["ownerReferences"],
        json!([{ "apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node-uid", "controller": true }])
    );
    assert_eq!(metadata.get("uid"), None);
    assert_eq!(body["spec"]["nodeName"], "node");
}

#[test]
fn one_request_at_a_time_and_failures_back_off() {
    let mut mirrors = MirrorPodManager::default();
    mirrors.set_static_pod(&"h".into(), Some((manifest("p", "h"), true)));
    mirrors.set_node(node(false));
    mirrors.mark_mirrors_synced();
    let request = due(&mut mirrors, 0).remove(0);
    assert_eq!(due(&mut mirrors, 1), []);
    mirrors.on_completed(&request, false, Duration::from_millis(10));
    assert_eq!(due(&mut mirrors, 500), []);
    let next = mirrors.next_due().unwrap();
    assert!(next >= Duration::from_millis(1010), "{next:?}");
    let request = due(&mut mirrors, 2000).remove(0);
    mirrors.on_completed(&request, true, Duration::from_millis(2010));
    assert_eq!(due(&mut mirrors, 2020), [], "waits for the watch");
    mirrors.set_mirror(&"m".into(), Some(mirror("p", "h", false)));
    assert_eq!(due(&mut mirrors, 2030), []);
    assert_eq!(mirrors.api_statuses().next().unwrap().1.unwrap().uid, "m");
    // Deleted by a user: recreated at once.
    mirrors.set_mirror(&"m".into(), None);
    assert_eq!(due(&mut mirrors, 2040).len(), 1);
}
