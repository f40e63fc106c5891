//! Volumes of a starting pod.

use serde_json::json;

use crate::core::apply_result;
use crate::core::step::{Step, StepFailure, StepKey, StepOutcome};
use crate::core::test_support::{TestEnv, at, simple};
use crate::core::volume_state::ObservedVolume;

#[test]
fn a_response_does_not_revert_a_newer_report() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    env.start_steps();
    let outcome = env.effect(&Step::ApplyVolumes);
    let StepOutcome::VolumesDeclared {
        digest,
        sequence,
        volumes,
    } = outcome
    else {
        panic!("declared")
    };
    apply_result::on_volumes(&mut env.pod, sequence, volumes.clone());
    let waiting = volumes
        .into_iter()
        .map(|v| ObservedVolume {
            mounted: false,
            ..v
        })
        .collect();
    let late = StepOutcome::VolumesDeclared {
        digest,
        sequence,
        volumes: waiting,
    };
    apply_result::on_finished(&mut env.pod, &StepKey::ApplyVolumes, late, at(0));
    assert!(env.pod.volumes.reported.as_ref().unwrap().1[0].mounted);
}

#[test]
fn the_sandbox_waits_for_missing_volumes_and_not_for_imminent_ones() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let volume = |mounted, coming| ObservedVolume {
        name: "data".into(),
        mounted,
        imminent: coming,
        gone: false,
        host_path: String::new(),
        message: String::new(),
        rejection_reason: String::new(),
        supplemental_group: None,
    };
    for (volume, expected) in [
        (volume(false, false), false),
        (volume(false, true), true),
        (volume(true, false), true),
    ] {
        let mut env = TestEnv::new(spec.clone());
        for step in env.start_steps() {
            env.finish(&step);
        }
        let (sequence, reported) = env.pod.volumes.reported.as_mut().unwrap();
        *reported = vec![volume.clone()].into();
        assert!(*sequence > 0);
        let planned = env.planned_keys().contains(&StepKey::CreateSandbox);
        assert_eq!(planned, expected, "{volume:?}");
    }
}

#[test]
fn a_pod_is_rejected_for_a_volume() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    let mut env = TestEnv::new(spec);
    for step in env.start_steps() {
        env.finish(&step);
    }
    let rejected = ObservedVolume {
        name: "data".into(),
        mounted: false,
        imminent: false,
        gone: false,
        host_path: String::new(),
        message: "limit reached".into(),
        rejection_reason: "VolumeAttachmentLimitExceeded".into(),
        supplemental_group: None,
    };
    apply_result::on_volumes(&mut env.pod, 1, vec![rejected]);
    let steps = env.start_steps();
    let [Step::CheckpointTermination(termination)] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert_eq!(termination.reason, "VolumeAttachmentLimitExceeded");
    assert_eq!(termination.message, "Pod was rejected: limit reached");
    assert_eq!(termination.phase, "Failed");
}

#[test]
fn sub_paths_are_prepared_before_the_start_permit_and_for_each_container_anew() {
    let mut spec = simple("Always", &["a", "b"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data", "subPath": "sub"}]);
    let mut env = TestEnv::new(spec);
    let create = StepKey::CreateContainer("a".into());
    let prepare = StepKey::PrepareSubPaths("a".into());
    for _ in 0..10 {
        let keys = env.planned_keys();
        if keys.contains(&prepare) {
            break;
        }
        assert!(!keys.contains(&create), "{keys:?}");
        for step in env.start_steps() {
            env.finish(&step);
        }
    }
    // A volume that hangs holds no permit, and keeps the other container from nothing.
    env.pod.has_start_permit = false;
    let keys = env.planned_keys();
    assert!(keys.contains(&prepare), "{keys:?}");
    assert!(env.plan().needs_start_permit.is_some(), "for container b");
    env.pod.has_start_permit = true;
    env.run_until_idle();
    assert_eq!(env.running_names(), ["a", "b"]);
    assert!(env.pod.sub_paths.is_empty(), "used");
    env.exit_container("a", 1);
    env.run_until_idle();
    let prepared = env.history.iter().filter(|step| step.key() == prepare);
    assert_eq!(prepared.count(), 2);
}

#[test]
fn sub_paths_that_cannot_be_prepared_are_the_waiting_reason() {
    let mut spec = simple("Always", &["a"]);
    spec["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    spec["containers"][0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data", "subPath": "sub"}]);
    let mut env = TestEnv::new(spec);
    let prepare = StepKey::PrepareSubPaths("a".into());
    for _ in 0..10 {
        for step in env.start_steps() {
            if step.key() == prepare {
                let failure = StepFailure {
                    reason: "CreateContainerConfigError".into(),
                    message: "deadline exceeded".into(),
                    ..StepFailure::default()
                };
                env.fail(&step, failure);
            } else {
                env.finish(&step);
            }
        }
    }
    let waiting = env.plan().waiting_containers;
    assert_eq!(waiting[0].reason, "CreateContainerConfigError");
    assert_eq!(waiting[0].message, "deadline exceeded");
}
