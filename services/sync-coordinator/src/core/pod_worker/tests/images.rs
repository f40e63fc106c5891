//! Waiting reasons of image pulls, and when images are pulled.

use polylet_model::constants::reason;
use serde_json::json;

use crate::core::apply_result;
use crate::core::step::{Step, StepFailure, StepKey};
use crate::core::test_support::{TestEnv, at, simple};

/// Fails the first pull, executes everything else, and returns reason and message of container `a`
/// at once and three seconds later.
fn waiting_after(failure: &StepFailure) -> [(String, String); 2] {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    loop {
        let steps = env.start_steps();
        if steps.is_empty() {
            break;
        }
        for step in steps {
            match step {
                Step::PullImage { .. } => env.fail(&step, failure.clone()),
                other => env.finish(&other),
            }
        }
    }
    let waiting = |env: &TestEnv| {
        let mut containers = env.plan().waiting_containers.into_iter();
        let waiting = containers.find(|waiting| waiting.container == "a");
        waiting
            .map(|waiting| (waiting.reason, waiting.message))
            .unwrap_or_default()
    };
    let first = waiting(&env);
    env.advance_clock(3);
    [first, waiting(&env)]
}

#[test]
fn registry_errors_are_shown_and_then_the_back_off() {
    let back_off = reason::IMAGE_PULL_BACK_OFF;
    for (reason, image, first, message) in [
        (
            reason::ERR_IMAGE_PULL,
            "",
            reason::ERR_IMAGE_PULL,
            "Back-off pulling image \"img-a:1\": ErrImagePull: error",
        ),
        (
            reason::REGISTRY_UNAVAILABLE,
            "img-a:1",
            reason::REGISTRY_UNAVAILABLE,
            "Back-off pulling image \"img-a:1\": RegistryUnavailable: error",
        ),
        (
            reason::SIGNATURE_VALIDATION_FAILED,
            // The image of a volume.
            "vol:1",
            reason::SIGNATURE_VALIDATION_FAILED,
            "Back-off pulling image \"vol:1\": SignatureValidationFailed: error",
        ),
    ] {
        let failure = StepFailure {
            reason: reason.into(),
            message: "error".into(),
            image: image.into(),
            ..StepFailure::default()
        };
        let [now, later] = waiting_after(&failure);
        assert_eq!(now, (first.to_owned(), "error".to_owned()));
        assert_eq!(later, (back_off.to_owned(), message.to_owned()));
    }
}

#[test]
fn local_errors_are_shown_without_back_off() {
    for reason in [
        reason::ERR_IMAGE_NEVER_PULL,
        reason::IMAGE_INSPECT_ERROR,
        reason::INVALID_IMAGE_NAME,
    ] {
        let failure = StepFailure {
            reason: reason.into(),
            message: "error".into(),
            ..StepFailure::default()
        };
        let same = (reason.to_owned(), "error".to_owned());
        assert_eq!(waiting_after(&failure), [same.clone(), same]);
    }
}

#[test]
fn an_image_removed_before_the_start_is_pulled_again() {
    let mut env = TestEnv::new(simple("Always", &["a"]));
    let mut missed = false;
    loop {
        let steps = env.start_steps();
        if steps.is_empty() {
            break;
        }
        for step in steps {
            match &step {
                Step::CreateContainer { .. } if !missed => {
                    missed = true;
                    let failure = StepFailure {
                        image_missing: true,
                        ..StepFailure::default()
                    };
                    env.fail(&step, failure);
                    assert!(env.planned_keys().contains(&StepKey::PullImage("a".into())));
                }
                _ => env.finish(&step),
            }
        }
    }
    assert_eq!(env.running_names(), ["a"]);
}

/// A pod that waits for the back-off of its pull since the start.
fn backing_off(policy: &str) -> TestEnv {
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["imagePullPolicy"] = json!(policy);
    let mut env = TestEnv::new(spec);
    for _ in 0..5 {
        for step in env.start_steps() {
            match step {
                Step::PullImage { .. } => env.fail(
                    &step,
                    StepFailure {
                        reason: reason::ERR_IMAGE_PULL.to_owned(),
                        image: "img-a:1".to_owned(),
                        ..StepFailure::default()
                    },
                ),
                other => env.finish(&other),
            }
        }
    }
    let key = StepKey::PullImage("a".into());
    env.pod.failures.get_mut(&key).unwrap().retry_at = at(300);
    env
}

#[test]
fn an_image_that_arrives_during_the_back_off_is_found() {
    let mut env = backing_off("IfNotPresent");
    let find = StepKey::FindImage("a".into());
    for second in [10, 20] {
        env.advance_clock(9);
        assert_eq!(env.plan().wake_at, Some(at(second)));
        assert!(!env.planned_keys().contains(&find), "{second}");
        env.advance_clock(1);
        assert!(env.planned_keys().contains(&find), "{second}");
        env.run_until_idle();
        let waiting = env.plan().waiting_containers;
        assert_eq!(waiting[0].reason, reason::IMAGE_PULL_BACK_OFF, "still");
    }
    env.images.insert("img-a:1".into());
    env.advance_clock(10);
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
    assert!(env.pod.failures.is_empty() && env.pod.image_searches.is_empty());
}

#[test]
fn an_image_that_another_pod_has_pulled_is_found_at_once() {
    let mut env = backing_off("IfNotPresent");
    assert!(!apply_result::on_image_arrived(&mut env.pod, "other:1"));
    env.images.insert("img-a:1".into());
    assert!(apply_result::on_image_arrived(&mut env.pod, "img-a:1"));
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a"]);
}

#[test]
fn an_image_that_is_pulled_at_each_start_is_not_looked_for() {
    let mut env = backing_off("Always");
    env.images.insert("img-a:1".into());
    env.advance_clock(60);
    assert!(env.planned_keys().is_empty());
    env.advance_clock(240);
    assert_eq!(env.planned_keys(), [StepKey::PullImage("a".into())]);
}

#[test]
fn an_image_that_is_pulled_at_each_start_is_pulled_right_before_it() {
    let mut spec = simple("Always", &["a", "b"]);
    spec["containers"][0]["imagePullPolicy"] = json!("Always");
    let init = json!({"name": "i1", "image": "i:1", "imagePullPolicy": "Always"});
    spec["initContainers"] = json!([init, {"name": "i2", "image": "i:1"}]);
    spec["initContainers"][1]["imagePullPolicy"] = json!("Always");
    let debug = json!({"name": "debug", "image": "d:1", "imagePullPolicy": "Always"});
    spec["ephemeralContainers"] = json!([debug]);
    let mut env = TestEnv::new(spec);
    let pulled = |env: &TestEnv| {
        let mut pulled = Vec::new();
        for step in &env.history {
            if let Step::PullImage { container } = step {
                pulled.push(container.clone());
            }
        }
        pulled
    };
    env.run_until_idle();
    assert_eq!(env.running_names(), ["debug", "i1"]);
    assert_eq!(pulled(&env), ["i1", "b", "debug"]);
    for (init, pulls) in [
        ("i1", &["i1", "b", "debug", "i2"][..]),
        ("i2", &["i1", "b", "debug", "i2", "a"]),
    ] {
        env.exit_container(init, 0);
        env.run_until_idle();
        assert_eq!(pulled(&env), pulls);
    }
    assert_eq!(env.running_names(), ["a", "b", "debug"]);

    // Without init containers, the regular ones start first.
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["imagePullPolicy"] = json!("Always");
    let env = TestEnv::new(spec);
    assert!(env.planned_keys().contains(&StepKey::PullImage("a".into())));
}
