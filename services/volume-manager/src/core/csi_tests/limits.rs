//! Drivers that can have no more volumes on the node.

use super::*;
use crate::core::limits::Recount;

#[test]
fn a_pod_is_refused_when_its_driver_can_attach_no_more() {
    let attached = |error: Value| {
        json!({"metadata": {"name": attachment_name("vol", DRIVER, "n")},
            "spec": {"attacher": DRIVER, "nodeName": "n", "source": {}},
            "status": {"attached": false, "attachError": error}})
    };
    let waits = |period: Value| {
        let mut state = ready("volumeMounts");
        let spec = json!({"attachRequired": true, "nodeAllocatableUpdatePeriodSeconds": period});
        driver(&mut state, spec);
        place(&mut state, "a", &[IN_USE]);
        let name = attachment_name("vol", DRIVER, "n");
        let error = json!({"message": "full", "errorCode": 8});
        tell(&mut state, ObjectKind::Attachment, &name, attached(error));
        done(&mut state, 0);
        state
    };
    let refused = |state: &mut State, second: i64| {
        state.next(at(second));
        let mut changes = state.changes(at(second)).into_iter();
        let view = changes.find_map(|(_, view)| view);
        view.filter(|view| view.volumes[0].refused)
            .map(|view| view.volumes[0].message.clone())
    };
    // Of drivers that are not asked again nobody knows whether that will change.
    let mut state = waits(Value::Null);
    assert!(state.recounts().is_empty() && state.wake_at().is_none());
    assert_eq!(refused(&mut state, 1000), None);

    let mut state = waits(json!(10));
    let recount = Recount {
        every: 10,
        asked: 0,
    };
    assert_eq!(state.recounts()[DRIVER], recount);
    assert!(message(&state).ends_with("attachment of volume vol failed: full"));
    assert_eq!(state.wake_at(), Some(at(123)));
    assert_eq!(refused(&mut state, 122), None);
    let why = "Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], \
        unattached volumes=[v], failed to process volumes=[]: context deadline exceeded";
    assert_eq!(refused(&mut state, 123).as_deref(), Some(why));
    // The driver is asked at once.
    let recount = Recount {
        every: 10,
        asked: 1,
    };
    assert_eq!(state.recounts()[DRIVER], recount);
    assert_eq!(state.wake_at(), None);
}
