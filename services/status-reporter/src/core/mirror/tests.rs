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

fn mirror(name: &str, of: &str, deleting: bool) -> Mirror {
    Mirror {
        uid: "m".into(),
        namespace: "n".into(),
        name: name.into(),
        of: of.into(),
        deleting,
        status: Some(PodStatus::default().into()),
    }
}

fn node(deleting: bool) -> Option<Node> {
    Some(Node {
        name: "node".into(),
        uid: "node-uid".into(),
        deleting,
    })
}

fn due(mirrors: &mut Mirrors, ms: u64) -> Vec<Job> {
    mirrors.due(&mut Bucket::new(0.0, 0.0), Moment::from_millis(ms))
}

#[test]
fn the_table() {
    let wanted = |hash: &str| Some((manifest("p", hash), true));
    let leaving = |hash: &str| Some((manifest("p", hash), false));
    // Static pods, the mirror, the node; whether one is removed, whether one is made.
    #[allow(clippy::type_complexity)]
    let cases: [(
        &str,
        Vec<Option<(Manifest, bool)>>,
        Option<Mirror>,
        Option<Node>,
        Option<(bool, bool)>,
    ); 11] = [
        (
            "new",
            vec![wanted("h")],
            None,
            node(false),
            Some((false, true)),
        ),
        (
            "as it should be",
            vec![wanted("h")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        ("no node yet", vec![wanted("h")], None, None, None),
        ("the node goes", vec![wanted("h")], None, node(true), None),
        (
            "edited",
            vec![wanted("h2")],
            Some(mirror("p", "h", false)),
            node(false),
            Some((true, true)),
        ),
        (
            "edited, no node",
            vec![wanted("h2")],
            Some(mirror("p", "h", false)),
            None,
            Some((true, false)),
        ),
        (
            "somebody removes it",
            vec![wanted("h")],
            Some(mirror("p", "h", true)),
            node(false),
            Some((true, true)),
        ),
        (
            "an orphan",
            vec![],
            Some(mirror("p", "h", false)),
            node(false),
            Some((true, false)),
        ),
        (
            "on its way out",
            vec![leaving("h")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        (
            "the next one waits",
            vec![leaving("h"), wanted("h2")],
            Some(mirror("p", "h", false)),
            node(false),
            None,
        ),
        (
            "another one's",
            vec![wanted("h")],
            Some(mirror("q", "h", false)),
            node(false),
            Some((false, true)),
        ),
    ];
    for (what, statics, held, node, expected) in cases {
        let mut mirrors = Mirrors::default();
        for pod in statics.into_iter().flatten() {
            mirrors.pod(pod.0.uid().as_str().to_owned().as_str(), Some(pod.clone()));
        }
        mirrors.mirror("m", held);
        mirrors.node(node);
        mirrors.whole(true);
        assert_eq!(
            due(&mut mirrors, 0),
            [],
            "{what}: before the cluster was heard"
        );
        mirrors.heard();
        let of_p = due(&mut mirrors, 0).into_iter().find(|job| job.name == "p");
        let done = of_p.map(|job| (job.delete.is_some(), job.create.is_some()));
        assert_eq!(done, expected, "{what}");
    }
}

#[test]
fn an_orphan_stays_until_everything_was_heard() {
    let mut mirrors = Mirrors::default();
    mirrors.mirror("m", Some(mirror("p", "h", false)));
    mirrors.heard();
    assert_eq!(due(&mut mirrors, 0), []);
    mirrors.whole(true);
    assert_eq!(due(&mut mirrors, 0)[0].delete.as_deref(), Some("m"));
}

#[test]
fn it_is_the_pod_itself_owned_by_its_node() {
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
fn one_at_a_time_then_the_watch_and_failures_wait() {
    let mut mirrors = Mirrors::default();
    mirrors.pod("h", Some((manifest("p", "h"), true)));
    mirrors.node(node(false));
    mirrors.heard();
    let job = due(&mut mirrors, 0).remove(0);
    assert_eq!(due(&mut mirrors, 1), []);
    mirrors.ended(&job, false, Moment::from_millis(10));
    assert_eq!(due(&mut mirrors, 500), []);
    let next = mirrors.next_due().unwrap();
    assert!(next >= Moment::from_millis(1010), "{next:?}");
    let job = due(&mut mirrors, 2000).remove(0);
    mirrors.ended(&job, true, Moment::from_millis(2010));
    assert_eq!(due(&mut mirrors, 2020), [], "the watch will tell");
    mirrors.mirror("m", Some(mirror("p", "h", false)));
    assert_eq!(due(&mut mirrors, 2030), []);
    assert_eq!(mirrors.holds().next().unwrap().1.unwrap().uid, "m");
    // Removed by hand: it comes back at once.
    mirrors.mirror("m", None);
    assert_eq!(due(&mut mirrors, 2040).len(), 1);
}
