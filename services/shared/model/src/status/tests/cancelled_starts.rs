use super::*;

fn one_container() -> Fixture {
    fixture(json!({"containers": [{"name": "a", "image": "x:1"}]}))
}

#[test]
fn a_cancelled_start_is_no_restart() {
    let cancelled = |attempt| RuntimeContainer {
        reason: "StartError".into(),
        message: "failed to create shim task: context canceled".into(),
        ..exited("a", attempt, 128)
    };
    let starting = one_container().sandbox();
    let expected = starting.status();
    let pod = one_container().sandbox().with(cancelled(0));
    assert_eq!(
        container_status(&pod.status(), "a"),
        container_status(&expected, "a")
    );
    let again = one_container()
        .sandbox()
        .with(exited("a", 0, 3))
        .with(cancelled(1));
    assert_eq!(
        state_of(&again.status(), "a")["terminated"]["exitCode"],
        3,
        "the exit before"
    );
    let failed = RuntimeContainer {
        reason: "StartError".into(),
        message: "exec: not found".into(),
        ..exited("a", 0, 128)
    };
    let failed = one_container().sandbox().with(failed).status();
    assert_eq!(state_of(&failed, "a")["terminated"]["reason"], "StartError");
}
