//! Drivers at their limit of volumes.

use super::*;
use crate::core::attach_limits::AllocatableUpdate;

#[test]
fn a_pod_is_rejected_when_its_driver_can_attach_no_more() {
    let attached = |error: Value| {
        json!({"metadata": {"name": attachment_name("vol", DRIVER, "n")},
            "spec": {"attacher": DRIVER, "nodeName": "n", "source": {}},
            "status": {"attached": false, "attachError": error}})
    };
    let waits = |period: Value| {
        let mut state = ready("volumeMounts");
        let spec = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": period});
        driver(&mut state, spec);
        node(&mut state, "a", &[IN_USE]);
        let name = attachment_name("vol", DRIVER, "n");
        let error = json!({"message": "full", "errorCode": 8});
        receive(&mut state, ObjectKind::Attachment, &name, attached(error));
        run_all(&mut state, 0);
        state
    };
    let rejection = |state: &mut StateOfWorld, second: i64| {
        state.start_operations(at(second));
        let mut changes = state.take_changes(at(second)).into_iter();
        let status = changes.find_map(|(_, status)| status);
        status
            .filter(|status| status.volumes[0].rejected)
            .map(|status| status.volumes[0].message.clone())
    };
    // Without refreshes of the limit no pod is rejected.
    let mut state = waits(Value::Null);
    assert!(state.allocatable_updates().is_empty() && state.next_retry().is_none());
    assert_eq!(rejection(&mut state, 1000), None);

    let mut state = waits(json!(10));
    let update = AllocatableUpdate {
        period_seconds: 10,
        generation: 0,
    };
    assert_eq!(state.allocatable_updates()[DRIVER], update);
    assert!(message(&state).ends_with("attachment of volume vol failed: full"));
    assert_eq!(state.next_retry(), Some(at(123)));
    assert_eq!(rejection(&mut state, 122), None);
    let expected = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], \
        unattached volumes=[v], failed to process volumes=[]: context deadline exceeded";
    assert_eq!(rejection(&mut state, 123).as_deref(), Some(expected));
    // The limit is refreshed at once.
    let update = AllocatableUpdate {
        period_seconds: 10,
        generation: 1,
    };
    assert_eq!(state.allocatable_updates()[DRIVER], update);
    assert_eq!(state.next_retry(), None);
}
