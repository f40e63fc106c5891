//! Volumes that are made larger.

use super::*;
use crate::core::growth;
use crate::core::plan::Why;
use crate::core::state::Stands;

#[test]
fn a_volume_grows_when_its_claim_says_that_the_node_has_begun() {
    let mut state = ready("volumeMounts");
    done(&mut state, 0);
    let status = |state: &str| json!({"allocatedResourceStatuses": {"storage": state}});
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, status("NodeResizePending"));
    assert!(state.next(at(1)).is_empty());
    let stands = |state: &State| {
        state
            .growing()
            .into_values()
            .next()
            .map(|of| (of.size, of.stands))
    };
    assert_eq!(stands(&state), Some(("2Gi".into(), Stands::InProgress)));
    claim(&mut state, status("NodeResizeInProgress"));
    let steps = state.next(at(2));
    let [Step::Ask(_, what, Asked::Grow)] = &steps[..] else {
        panic!("{steps:?}")
    };
    assert!(matches!(&**what, SetUp::Csi(csi) if csi.size.bytes == 2 << 30));
    let no = "Expander.NodeExpand failed to expand the volume : no".to_owned();
    let step = steps[0].clone();
    state.finished(
        Outcome {
            step,
            result: Err(no.clone().into()),
        },
        at(2),
    );
    assert_eq!(
        stands(&state),
        Some(("2Gi".into(), Stands::Failed(no.clone())))
    );
    // The pod is not disturbed.
    let view = state.view("u", at(2)).unwrap();
    assert_eq!(view.volumes[0].phase, Phase::Mounted);
    let said = format!("NodeExpandVolume.NodeExpandVolume failed for volume \"pv\" : {no}");
    assert_eq!(view.volumes[0].message, said);
    assert_eq!(done(&mut state, 10).len(), 1);
    assert_eq!(stands(&state), Some(("2Gi".into(), Stands::Finished)));
    // Told until the claim says so itself.
    claim(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    assert_eq!(stands(&state), None);
    assert!(state.next(at(11)).is_empty());
}

#[test]
fn a_volume_made_larger_by_another_node_is_made_larger_here() {
    let mut state = ready("volumeMounts");
    done(&mut state, 0);
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    assert!(matches!(
        &state.next(at(1))[..],
        [Step::Ask(_, _, Asked::Grow)]
    ));
    assert!(state.growing().is_empty());
}

#[test]
fn a_pod_has_its_volume_in_its_size_where_the_node_has_yet_to_begin() {
    let mut state = ready("volumeMounts");
    let status = |state: &str| json!({"allocatedResources": {"storage": "2Gi"}, "allocatedResourceStatuses": {"storage": state}});
    persistent(&mut state, json!({"capacity": {"storage": "3Gi"}}));
    claim(&mut state, status("NodeResizePending"));
    assert!(
        state.next(at(0)).is_empty(),
        "the claim has to say so first"
    );
    let stands = |state: &State| state.growing().into_values().next();
    let announced = stands(&state).map(|of| (of.size, of.stands));
    assert_eq!(announced, Some(("2Gi".into(), Stands::InProgress)));
    claim(&mut state, status("NodeResizeInProgress"));
    let steps = state.next(at(1));
    let [Step::SetUp(_, what)] = &steps[..] else {
        panic!("{steps:?}")
    };
    // What was granted, and not what the volume has of it.
    assert!(matches!(&**what, SetUp::Csi(csi) if csi.size.bytes == 2 << 30));

    // A failure before that is no failure to grow.
    let fail = |state: &mut State, why: Why| {
        state.finished(
            Outcome {
                step: steps[0].clone(),
                result: Err(why),
            },
            at(1),
        );
        stands(state).map(|of| of.stands)
    };
    assert_eq!(fail(&mut state, "not staged".into()), None);
    state.next(at(5));
    let large =
        "Expander.NodeExpand failed to expand the volume rpc error: code = OutOfRange desc = large";
    let why = Why {
        doing: Some(growth::MOUNTING),
        ..large.into()
    };
    let never = Some(Stands::Infeasible(large.into()));
    assert_eq!(fail(&mut state, why), never);
    // It is mounted, and not in use yet.
    let said = "MountVolume.Setup failed while expanding volume for volume \"pv\" : ";
    assert!(message(&state).starts_with(said), "{}", message(&state));
}

#[test]
fn what_does_not_grow_while_it_is_in_use_is_asked_for_once() {
    let mut state = ready("volumeMounts");
    let status = json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}});
    done(&mut state, 0);
    persistent(&mut state, json!({"capacity": {"storage": "2Gi"}}));
    claim(&mut state, status);
    let steps = state.next(at(1));
    let [step @ Step::Ask(_, _, Asked::Grow)] = &steps[..] else {
        panic!("{steps:?}")
    };
    let why = Why {
        in_use: true,
        ..Why::from("it is in use")
    };
    let (step, result) = (step.clone(), Err(why));
    state.finished(Outcome { step, result }, at(1));
    assert!(state.next(at(1000)).is_empty());
    let stands = state.growing().into_values().next().map(|of| of.stands);
    assert_eq!(stands, Some(Stands::Failed("it is in use".into())));
    // The pod has it as it is, and nobody is bothered.
    assert_eq!(message(&state), "");
}
