use k8s_openapi::api::core::v1::PodStatus;
use proptest::prelude::*;
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
        let statuses = mirrors.take_api_statuses(|uid| (*uid == "u").then_some(&own));
        let [(_, Some(found))] = statuses.as_slice() else {
            panic!("{statuses:?}");
        };
        assert_eq!(found.status.is_same(&own), is_shared);
        assert_eq!(found.status, *status);
        // Others have nothing to report, and this one once.
        assert_eq!(mirrors.take_api_statuses(|_| None), []);
        let at_rest = own.unparsed();
        mirrors.drop_parsed("u", &at_rest);
        let known = |pods: &NamedPods| pods.mirrors["m"].status.clone().unwrap();
        let known = known(mirrors.names.values().next().unwrap());
        assert_eq!(known.is_same(&at_rest), is_shared);
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
    let pod = MirroredPod::new(&manifest("p", "h"), true);
    let body = named_pods::body(&pod, &node(false).unwrap()).unwrap();
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
    let (_, status) = mirrors.take_api_statuses(|_| None).pop().unwrap();
    assert_eq!(status.unwrap().uid, "m");
    // Deleted by a user: recreated at once.
    mirrors.set_mirror(&"m".into(), None);
    assert_eq!(due(&mut mirrors, 2040).len(), 1);
}

/// A change of what the manager knows, or time that passes.
#[derive(Clone, Debug)]
enum MirrorStep {
    /// The number of a static pod, of its name and of its hash, and whether a source still has it; `None` for
    /// its removal.
    Static(u8, Option<(u8, u8, bool)>),
    /// The number of a mirror pod, of its name and of its hash, and whether it is being deleted.
    Mirror(u8, Option<(u8, u8, bool)>),
    Node(Option<bool>),
    MirrorsSynced,
    PodsSynced(bool),
    /// The number of a request in flight, and whether it succeeds.
    Complete(usize, bool),
    /// So many milliseconds.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<MirrorStep>> {
    let pod = || prop::option::of((0..2u8, 0..2u8, any::<bool>()));
    let step = prop_oneof![
        5 => (0..4u8, pod()).prop_map(|(uid, pod)| MirrorStep::Static(uid, pod)),
        5 => (0..3u8, pod()).prop_map(|(uid, pod)| MirrorStep::Mirror(uid, pod)),
        1 => prop::option::of(any::<bool>()).prop_map(MirrorStep::Node),
        1 => Just(MirrorStep::MirrorsSynced),
        1 => any::<bool>().prop_map(MirrorStep::PodsSynced),
        4 => (0..2usize, any::<bool>()).prop_map(|(of, ok)| MirrorStep::Complete(of, ok)),
        3 => (0..4000u64).prop_map(MirrorStep::Wait),
    ];
    prop::collection::vec(step, 0..80)
}

/// A manager with its requests in flight and the statuses that it has reported.
struct MirrorFixture {
    mirrors: MirrorPodManager,
    rate_limit: TokenBucket<Duration>,
    in_flight: Vec<MirrorRequest>,
    reported: BTreeMap<PodUid, ApiStatus>,
    now: Duration,
}

impl MirrorFixture {
    fn new() -> Self {
        let mut mirrors = MirrorPodManager::default();
        mirrors.set_node(node(false));
        mirrors.mark_mirrors_synced();
        MirrorFixture {
            mirrors,
            rate_limit: TokenBucket::new(1.0, 2.0, Duration::ZERO),
            in_flight: Vec::new(),
            reported: BTreeMap::new(),
            now: Duration::ZERO,
        }
    }

    fn handle(&mut self, step: &MirrorStep) {
        let mirrors = &mut self.mirrors;
        match *step {
            MirrorStep::Static(uid, pod) => {
                let uid = PodUid::from(format!("s{uid}"));
                let pod = pod.map(|(name, hash, desired)| {
                    let (name, hash) = (format!("p{name}"), format!("h{hash}"));
                    (manifest(&name, &hash), desired)
                });
                if pod.is_none() {
                    self.reported.remove(&uid);
                }
                mirrors.set_static_pod(&uid, pod);
            }
            MirrorStep::Mirror(uid, pod) => {
                let uid = PodUid::from(format!("m{uid}"));
                let pod = pod.map(|(name, hash, deleting)| MirrorPod {
                    uid: uid.clone(),
                    ..mirror(&format!("p{name}"), &format!("h{hash}"), deleting)
                });
                mirrors.set_mirror(&uid, pod);
            }
            MirrorStep::Node(deleting) => mirrors.set_node(deleting.and_then(node)),
            MirrorStep::MirrorsSynced => mirrors.mark_mirrors_synced(),
            MirrorStep::PodsSynced(synced) => mirrors.set_pods_synced(synced),
            MirrorStep::Complete(of, succeeded) if of < self.in_flight.len() => {
                let request = self.in_flight.remove(of);
                mirrors.on_completed(&request, succeeded, self.now);
            }
            MirrorStep::Complete(..) => {}
            MirrorStep::Wait(ms) => self.now += Duration::from_millis(ms),
        }
    }

    /// Sends what is due, and reports changed statuses.
    fn act(&mut self) -> Vec<MirrorRequest> {
        for (uid, status) in self.mirrors.take_api_statuses(|_| None) {
            match status {
                Some(status) => self.reported.insert(uid, status),
                None => self.reported.remove(&uid),
            };
        }
        let requests = self.mirrors.take_due(&mut self.rate_limit, self.now);
        self.in_flight.extend(requests.iter().cloned());
        requests
    }

    /// The same as if everything had changed.
    fn act_on_all(&mut self) -> Vec<MirrorRequest> {
        let names = self.mirrors.names.keys().cloned();
        self.mirrors.unreported.extend(names);
        self.mirrors.mark_all();
        self.act()
    }
}

proptest! {
    #[test]
    fn names_that_have_not_changed_need_no_request(steps in steps()) {
        let (mut changed, mut all) = (MirrorFixture::new(), MirrorFixture::new());
        for step in steps {
            changed.handle(&step);
            all.handle(&step);
            prop_assert_eq!(changed.act(), all.act_on_all());
            prop_assert_eq!(&changed.reported, &all.reported);
            prop_assert_eq!(changed.mirrors.next_due(), all.mirrors.next_due());
            prop_assert!(changed.mirrors.next_due().is_none_or(|due| due > changed.now));
            let mut names = changed.mirrors.names.values();
            let is_limited = !changed.mirrors.dirty.is_empty();
            prop_assert!(is_limited || !names.any(NamedPods::is_unused));
        }
    }
}
