//! Rejections, drift, ineffective patches, and deletions.

use polylet_model::PodUid;

use super::*;

#[test]
fn rejection_delays_one_pod_and_unavailability_all() {
    let mut fixture = Fixture::new();
    for pod in ["a", "b", "c"] {
        fixture
            .queue
            .set_api_status(&pod.into(), api(pod, pending()), ms(0));
        fixture
            .queue
            .set_desired(&pod.into(), desired(pod, running()), ms(0));
    }
    let requests = fixture.due(0);
    fixture
        .queue
        .on_completed(&requests[0], PatchResult::Rejected, ms(0));
    assert!(fixture.due(199).is_empty());
    let next = fixture.queue.next_due().unwrap();
    assert!(next >= ms(200) && next <= ms(300), "{next:?}");
    fixture
        .queue
        .on_completed(&requests[1], PatchResult::Unavailable(ms(1000)), ms(10));
    fixture
        .queue
        .on_completed(&requests[2], PatchResult::Unavailable(ms(9000)), ms(20));
    assert!(fixture.due(1000).is_empty());
    assert_eq!(fixture.queue.next_due(), Some(ms(1010)));
    let probe = fixture.due(1010);
    assert_eq!(probe.len(), 1, "one request probes the API server");
    assert_eq!(fixture.queue.next_due(), None);
    fixture.patched(&probe[0], pending(), 1020);
    assert_eq!(fixture.due(1020).len(), 2, "then all others follow");
}

#[test]
fn overwritten_status_is_repaired_at_a_limited_rate() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", running()), ms(0));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", running()), ms(0));
    let drift = with(running(), &[("/podIP", json!("10.9.9.9"))]);
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", drift.clone()), ms(1000));
    // Not urgent: the patch is batched.
    let requests = fixture.due(1400);
    assert_eq!(requests.len(), 1);
    fixture.patched(&requests[0], drift.clone(), 1410);
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", running()), ms(1411));
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", drift), ms(1500));
    assert!(fixture.due(5000).is_empty());
    assert_eq!(fixture.due(11_400).len(), 1);
}

#[test]
fn pod_is_deleted_once_after_its_last_status_and_cleanup() {
    let ended = with(
        exited(),
        &[
            ("/phase", json!("Failed")),
            ("/conditions/0", condition("Ready", "False", 9)),
        ],
    );
    let deleted = |deletable| DesiredStatus {
        deletable,
        phase: rules(false),
        ..desired("p", ended.clone()).unwrap()
    };
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", exited()), ms(0));
    fixture
        .queue
        .set_desired(&"u".into(), Some(deleted(true)), ms(0));
    let requests = fixture.due(0);
    let after = fixture.patched(&requests[0], exited(), 5);
    fixture.queue.set_api_status(
        &"u".into(),
        Some(ApiStatus {
            uid: "u".into(),
            status: after.clone().into(),
        }),
        ms(6),
    );
    let requests = fixture.due(6);
    assert_eq!(requests[0].action, ApiAction::Delete);
    fixture
        .queue
        .on_completed(&requests[0], PatchResult::Deleted, ms(7));
    assert!(
        fixture.due(60_000).is_empty(),
        "a finalizer may block the deletion"
    );
    fixture.queue.set_api_status(&"u".into(), None, ms(60_001));
    fixture.queue.set_desired(&"u".into(), None, ms(60_002));
    assert_eq!(fixture.queue.next_due(), None);

    // Not before the cleanup.
    let mut early = Fixture::new();
    early.queue.set_api_status(
        &"u".into(),
        Some(ApiStatus {
            uid: "u".into(),
            status: after.into(),
        }),
        ms(0),
    );
    early
        .queue
        .set_desired(&"u".into(), Some(deleted(false)), ms(0));
    assert!(early.due(60_000).is_empty());
}

#[test]
fn mirror_pod_with_a_new_uid_starts_over() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"static".into(), api("mirror-1", pending()), ms(0));
    fixture
        .queue
        .set_desired(&"static".into(), desired("p", running()), ms(0));
    let requests = fixture.due(0);
    assert_eq!(requests[0].uid, "mirror-1");
    fixture.queue.set_api_status(&"static".into(), None, ms(1));
    fixture
        .queue
        .on_completed(&requests[0], PatchResult::Rejected, ms(2));
    assert_eq!(fixture.queue.next_due(), None);
    fixture
        .queue
        .set_api_status(&"static".into(), api("mirror-2", pending()), ms(3));
    let requests = fixture.due(3);
    assert_eq!(
        requests[0].uid, "mirror-2",
        "at once, without the delay of the previous mirror pod"
    );
}

#[test]
fn ineffective_patches_become_rare() {
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", pending()), ms(0));
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", running()), ms(0));
    let (mut last, mut gaps) = (0, Vec::new());
    for second in 0..600 {
        for request in fixture.due(second * 1000) {
            // An older API server that does not know the field.
            let older = with(running(), &[("/observedGeneration", Value::Null)]);
            let result = PatchResult::Patched(status(older).into());
            fixture
                .queue
                .on_completed(&request, result, ms(second * 1000));
            gaps.push(second - last);
            last = second;
        }
    }
    assert!(gaps.len() <= 7, "{gaps:?}");
    // A new status is patched at once.
    fixture
        .queue
        .set_desired(&"u".into(), desired("p", exited()), ms(600_000));
    assert_eq!(fixture.due(600_000).len(), 1);
}

/// Completes the first patch of a pod, so that another one follows.
fn complete_with_repeat(queue: &mut PatchQueue, request: &StatusRequest, case: &str) {
    let (pod, uid) = (&request.pod, request.uid.as_str());
    let older = || with(running(), &[("/observedGeneration", Value::Null)]);
    let patched = |after| PatchResult::Patched(status(after).into());
    match case {
        "rejected" => {
            queue.on_completed(request, PatchResult::Rejected, ms(5));
            // Waits for the next batch then, which is later than the back-off.
            queue.set_desired(pod, desired(pod, creating()), ms(6));
        }
        "not stored" => {
            queue.on_completed(request, patched(older()), ms(5));
            queue.set_api_status(pod, api(uid, older()), ms(6));
        }
        _ => {
            queue.on_completed(request, patched(running()), ms(5));
            queue.set_api_status(pod, api(uid, running()), ms(6));
            let drift = with(running(), &[("/podIP", json!("10.9.9.9"))]);
            queue.set_api_status(pod, api(uid, drift), ms(6));
        }
    }
}

#[test]
fn repeats_neither_make_the_node_busy_nor_delay_other_pods() {
    for case in ["rejected", "not stored", "overwritten"] {
        let mut fixture = Fixture::new();
        for pod in (0..5).map(|pod| pod.to_string()) {
            let (queue, uid) = (&mut fixture.queue, PodUid::from(pod.as_str()));
            queue.set_api_status(&uid, api(&pod, pending()), ms(0));
            queue.set_desired(&uid, desired(&pod, running()), ms(0));
            assert!(queue.is_busy(), "{case}: a new status");
        }
        let requests = fixture.due(0);
        assert_eq!(requests.len(), 5, "{case}");
        let queue = &mut fixture.queue;
        for request in &requests {
            assert!(queue.is_busy(), "{case}: in flight");
            complete_with_repeat(queue, request, case);
        }
        assert!(queue.next_due().is_some(), "{case}: repeated later");
        assert!(!queue.is_busy(), "{case}");
        // A pod that starts is patched as if it were alone.
        queue.set_api_status(&"new".into(), api("new", pending()), ms(10));
        queue.set_desired(&"new".into(), desired("new", creating()), ms(10));
        assert!(queue.is_busy(), "{case}: another pod");
        let names = fixture.names(410);
        assert!(names.contains(&"new".to_owned()), "{case}: {names:?}");
    }
}

#[test]
fn pod_is_deleted_despite_ineffective_patches() {
    let ended = with(exited(), &[("/phase", json!("Failed"))]);
    let deleted = DesiredStatus {
        deleting: true,
        deletable: true,
        phase: rules(false),
        ..desired("p", ended.clone()).unwrap()
    };
    let mut fixture = Fixture::new();
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", exited()), ms(0));
    fixture.queue.set_desired(&"u".into(), Some(deleted), ms(0));
    let requests = fixture.due(0);
    assert!(
        matches!(requests[0].action, ApiAction::Patch(_)),
        "its terminal phase first"
    );
    let older = with(ended, &[("/observedGeneration", Value::Null)]);
    let result = PatchResult::Patched(status(older.clone()).into());
    fixture.queue.on_completed(&requests[0], result, ms(5));
    fixture
        .queue
        .set_api_status(&"u".into(), api("u", older), ms(6));
    assert_eq!(
        fixture.due(6).first().map(|request| &request.action),
        Some(&ApiAction::Delete)
    );
}
