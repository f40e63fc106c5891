//! Expansion of CSI volumes.

use super::*;
use crate::core::operation::OperationError;
use crate::core::resize;
use crate::core::state_of_world::ResizeState;

/// The size and the progress of the resize, as published.
fn resize_state(state: &mut StateOfWorld) -> Option<(String, ResizeState)> {
    state.refresh_claims();
    let claim = state.resizing_claims().into_values().next()?;
    Some((claim.size, claim.state))
}

#[test]
fn a_volume_is_expanded_when_its_claim_shows_that_the_node_has_begun() {
    let mut state = ready("volumeMounts");
    run_all(&mut state, 0);
    let status = |state: &str| json!({"allocatedResourceStatuses": {"storage": state}});
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, status("NodeResizePending"));
    assert!(state.start_operations(at(1)).is_empty());
    assert_eq!(
        resize_state(&mut state),
        Some(("2Gi".into(), ResizeState::InProgress))
    );
    claim(&mut state, status("NodeResizeInProgress"));
    let operations = state.start_operations(at(2));
    let [Operation::Update(_, plan, VolumeUpdate::Expand)] = &operations[..] else {
        panic!("{operations:?}")
    };
    assert!(matches!(&**plan, MountPlan::Csi(csi) if csi.size.bytes == 2 << 30));
    let failed = "Expander.NodeExpand failed to expand the volume : no".to_owned();
    let operation = operations[0].clone();
    state.finish_operation(
        OperationResult {
            operation,
            result: Err(failed.clone().into()),
        },
        at(2),
    );
    assert_eq!(
        resize_state(&mut state),
        Some(("2Gi".into(), ResizeState::Failed(failed.clone())))
    );
    // The pod keeps the volume.
    let status = state.status(&"u".into(), at(2)).unwrap();
    assert_eq!(status.volumes[0].phase, VolumePhase::Mounted);
    let text = format!("NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : {failed}");
    assert_eq!(status.volumes[0].message, text);
    assert_eq!(run_all(&mut state, 10).len(), 1);
    assert_eq!(
        resize_state(&mut state),
        Some(("2Gi".into(), ResizeState::Finished))
    );
    // Reported until the claim shows it.
    claim(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    assert_eq!(resize_state(&mut state), None);
    assert!(state.start_operations(at(11)).is_empty());
}

#[test]
fn a_volume_expanded_by_another_node_is_expanded_here() {
    let mut state = ready("volumeMounts");
    run_all(&mut state, 0);
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    assert!(matches!(
        &state.start_operations(at(1))[..],
        [Operation::Update(_, _, VolumeUpdate::Expand)]
    ));
    assert_eq!(resize_state(&mut state), None);
}

#[test]
fn a_volume_is_expanded_when_it_is_set_up() {
    let mut state = ready("volumeMounts");
    let status = |state: &str| json!({"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": state}});
    persistent(&mut state, json!({"capacity": {"storage": "3Gi"}}));
    claim(&mut state, status("NodeResizePending"));
    assert!(
        state.start_operations(at(0)).is_empty(),
        "the claim has to say so first"
    );
    assert_eq!(
        resize_state(&mut state),
        Some(("2Gi".into(), ResizeState::InProgress))
    );
    claim(&mut state, status("NodeResizeInProgress"));
    let operations = state.start_operations(at(1));
    let [Operation::SetUp(_, plan)] = &operations[..] else {
        panic!("{operations:?}")
    };
    // The allocated size, not the capacity of the volume.
    assert!(matches!(&**plan, MountPlan::Csi(csi) if csi.size.bytes == 2 << 30));

    // A failure of an earlier step is not a failed expansion.
    let fail = |state: &mut StateOfWorld, error: OperationError| {
        state.finish_operation(
            OperationResult {
                operation: operations[0].clone(),
                result: Err(error),
            },
            at(1),
        );
        resize_state(state).map(|(_, state)| state)
    };
    assert_eq!(fail(&mut state, "not staged".into()), None);
    state.start_operations(at(5));
    let large =
        "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = large";
    let error = OperationError {
        step: Some(resize::MOUNT_STEP),
        ..large.into()
    };
    let infeasible = Some(ResizeState::Infeasible(large.into()));
    assert_eq!(fail(&mut state, error), infeasible);
    // Mounted, but not usable yet.
    let text = "MountVolume.Setup failed while expanding volume for volume \"pv\" : ";
    assert!(message(&state).starts_with(text), "{}", message(&state));
}

#[test]
fn a_volume_that_cannot_be_expanded_in_use_is_tried_once() {
    let mut state = ready("volumeMounts");
    let status = json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}});
    run_all(&mut state, 0);
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, status);
    let operations = state.start_operations(at(1));
    let [operation @ Operation::Update(_, _, VolumeUpdate::Expand)] = &operations[..] else {
        panic!("{operations:?}")
    };
    let error = OperationError {
        in_use: true,
        ..OperationError::from("it is in use")
    };
    let (operation, result) = (operation.clone(), Err(error));
    state.finish_operation(OperationResult { operation, result }, at(1));
    assert!(state.start_operations(at(1000)).is_empty());
    let failed = ResizeState::Failed("it is in use".into());
    assert_eq!(resize_state(&mut state), Some(("2Gi".into(), failed)));
    // The pod has it unchanged, without a message.
    assert_eq!(message(&state), "");
}
