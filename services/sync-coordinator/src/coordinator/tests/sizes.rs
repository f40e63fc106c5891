//! What pods are given, and what they grow by.

use super::*;

/// A pod of the API server that has one of three CPUs, and now asks for so many.
fn asking(all: &mut Coordinator, uid: &str, cpus: u32, second: i64) {
    let manifest = sized(uid, cpus);
    let pod = Pod {
        r#ref: Some(PodRef {
            uid: uid.to_owned(),
            namespace: "default".to_owned(),
            name: uid.to_owned(),
        }),
        manifest: manifest.raw().clone(),
        ..Default::default()
    };
    let update = Update::Upsert(uid.to_owned(), pod);
    all.take(Input::Config(SOURCES[2].into(), update), at(second));
    all.work(at(second));
}

fn sized(uid: &str, cpus: u32) -> polylet_model::Manifest {
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid,
            "annotations": {"kubernetes.io/config.source": "api"}},
        "spec": {"containers": [{"name": "a", "image": "a:1",
            "resources": {"requests": {"cpu": cpus.to_string()}}}]}});
    polylet_model::Manifest::from_json(manifest.to_string().as_bytes()).unwrap()
}

#[test]
fn of_two_pods_that_grow_the_second_waits_for_what_the_first_gives_back() {
    let entry = |uid: &str| {
        let has = crate::core::wanted::Wanted::of(&sized(uid, 1), &[]);
        let journal = Journal {
            acknowledged_at: Some(at(-9)),
            demand: Some(has.demand),
            allocated: Some(has.allocation),
            ..Default::default()
        };
        (uid.to_owned(), journal)
    };
    let (mut all, notes) = heard(Kept {
        entries: [entry("u1"), entry("u2")].into(),
        ..Default::default()
    });
    all.node.room.allocatable = Some([("cpu".to_owned(), 3000)].into());
    let given = || -> Vec<String> {
        let steps = notes.steps.take();
        let given = steps
            .into_iter()
            .filter(|(_, step)| matches!(step, Step::Allocate { .. }));
        given.map(|(uid, _)| uid).collect()
    };
    let written = |all: &mut Coordinator, uid: &str, second: i64| {
        let done = Input::StepDone {
            uid: uid.to_owned(),
            key: StepKey::Journal,
            outcome: Box::new(Outcome::Done),
            state: None,
        };
        all.take(done, at(second));
        all.work(at(second));
    };
    asking(&mut all, "u1", 2, 1);
    // Not even while the first one's is on its way to the disk.
    asking(&mut all, "u2", 2, 2);
    assert_eq!(given(), ["u1"]);
    written(&mut all, "u1", 3);
    assert_eq!(given(), Vec::<String>::new());
    asking(&mut all, "u1", 1, 4);
    assert_eq!(given(), ["u1"]);
    // Room is there once it is written down that the first one has less.
    written(&mut all, "u1", 5);
    assert_eq!(given(), ["u2"]);
    assert_eq!(all.node.room.ledger.used("cpu"), 3000);
}

#[test]
fn a_pod_of_a_kubelet_has_what_that_gave_it() {
    let before = crate::core::wanted::Wanted::of(&sized("u1", 1), &[]);
    let (mut all, _) = heard(Kept {
        taken_over: [("u1".to_owned(), (*before.allocation).clone())].into(),
        ..Default::default()
    });
    all.node.room.allocatable = Some([("cpu".to_owned(), 3000)].into());
    asking(&mut all, "u1", 4, 1);
    let journal = &all.workers["u1"].pod.journal;
    assert_eq!(journal.allocated.as_deref(), Some(&*before.allocation));
    assert_eq!(
        journal.demand.as_ref().unwrap().requests,
        before.demand.requests
    );
}
