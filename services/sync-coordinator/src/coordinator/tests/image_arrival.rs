//! Pods that wait for an image which another pod pulls.

use super::*;

/// Serves a pod of its own name with one container of this image.
fn serve(coordinator: &mut Coordinator, uid: &str, image: &str, second: i64) {
    let Update::Upsert(_, mut pod) = desired_with(uid, uid, json!([])) else {
        return;
    };
    let manifest = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"containers": [{"name": "a", "image": image}]}});
    pod.manifest = serde_json::to_vec(&manifest).unwrap().into();
    let update = Update::Upsert(uid.into(), pod);
    set_desired(coordinator, PodSource::File, update, second);
    coordinator.reconcile(at(second));
}

/// Ends the pull of a pod's image, which has failed or succeeded.
fn end_pull(coordinator: &mut Coordinator, uid: &str, image: &str, failed: bool) {
    let outcome = if failed {
        StepOutcome::Failed(StepFailure {
            image: image.to_owned(),
            ..StepFailure::default()
        })
    } else {
        StepOutcome::ImagePulled {
            image: image.to_owned(),
            image_ref: "sha256:1".to_owned(),
        }
    };
    let finished = Input::StepFinished {
        uid: uid.into(),
        key: StepKey::PullImage("a".into()),
        outcome: Box::new(outcome),
        state: None,
    };
    coordinator.handle_input(finished, at(2));
}

/// The pods that wait for an image.
fn waiting(coordinator: &Coordinator, image: &str) -> Vec<PodUid> {
    coordinator.state.workers.pods_without_image(image)
}

/// Four pods, of which the first two could not pull `a:1`, and the third `b:1`.
fn after_failures() -> Coordinator {
    let (mut coordinator, _) = synced(RestoredState::default());
    for (uid, image) in [("u1", "a:1"), ("u2", "a:1"), ("u3", "b:1"), ("u4", "a:1")] {
        serve(&mut coordinator, uid, image, 1);
    }
    for (uid, image) in [("u1", "a:1"), ("u2", "a:1"), ("u3", "b:1")] {
        end_pull(&mut coordinator, uid, image, true);
    }
    assert_eq!(waiting(&coordinator, "a:1"), ["u1", "u2"]);
    assert_eq!(waiting(&coordinator, "b:1"), ["u3"]);
    coordinator
}

#[test]
fn image_of_another_pod_is_looked_for_at_once() {
    let mut coordinator = after_failures();
    coordinator.reconcile(at(2));
    end_pull(&mut coordinator, "u4", "a:1", false);
    for (uid, wakes) in [("u1", true), ("u2", true), ("u3", false)] {
        let searches = &worker(&coordinator, uid).pod.image_searches;
        let expected = wakes.then_some(&Timestamp::MIN);
        assert_eq!(searches.get("a"), expected, "{uid}");
        let queue = &coordinator.state.workers.queue;
        assert_eq!(queue.contains(uid), wakes, "{uid}");
    }
    // Until they have found it: the search may fail.
    assert_eq!(waiting(&coordinator, "a:1"), ["u1", "u2"]);
}

#[test]
fn pods_without_a_failed_pull_wait_for_no_image() {
    let mut coordinator = after_failures();
    // Its next pull succeeds.
    coordinator.reconcile(at(30));
    end_pull(&mut coordinator, "u1", "a:1", false);
    assert_eq!(waiting(&coordinator, "a:1"), ["u2"]);
    // Its manifest names another image.
    serve(&mut coordinator, "u2", "c:1", 31);
    assert_eq!(waiting(&coordinator, "a:1"), [""; 0]);
    coordinator.state.workers.remove(&"u3".into());
    assert_eq!(waiting(&coordinator, "b:1"), [""; 0]);
}
