use super::*;

fn pod(text: &str) -> Pod {
    serde_json::from_value(serde_json::from_str(text).unwrap()).unwrap()
}

/// Init containers, containers, status, and the expected summary.
type Case = (
    &'static str,
    &'static str,
    &'static str,
    (usize, usize, &'static str, i32),
);

#[test]
fn statuses_match_kubectl() {
    let table: &[Case] = &[
        ("", "a", r#"{"phase":"Pending"}"#, (0, 1, "Pending", 0)),
        ("", "a", "{}", (0, 1, "Unknown", 0)),
        (
            "",
            "a",
            r#"{"phase":"Failed","reason":"Evicted"}"#,
            (0, 1, "Evicted", 0),
        ),
        (
            "",
            "ab",
            r#"{"phase":"Running","containerStatuses":[
                {"name":"a","ready":true,"restartCount":1,"state":{"running":{}}},
                {"name":"b","ready":false,"restartCount":4,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}"#,
            (1, 2, "CrashLoopBackOff", 5),
        ),
        (
            "i",
            "a",
            r#"{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"running":{}}}],
                "containerStatuses":[{"name":"a","state":{"waiting":{"reason":"PodInitializing"}}}]}"#,
            (0, 1, "Init:0/1", 0),
        ),
        (
            "i",
            "a",
            r#"{"phase":"Pending","initContainerStatuses":[
                {"name":"i","restartCount":2,"state":{"terminated":{"exitCode":3,"reason":"Error"}}}]}"#,
            (0, 1, "Init:Error", 2),
        ),
        (
            "i",
            "a",
            r#"{"phase":"Pending","initContainerStatuses":[{"name":"i","state":{"terminated":{"exitCode":3}}}]}"#,
            (0, 1, "Init:ExitCode:3", 0),
        ),
        (
            "i",
            "a",
            r#"{"phase":"Pending","initContainerStatuses":[
                {"name":"i","state":{"waiting":{"reason":"ErrImagePull"}}}]}"#,
            (0, 1, "Init:ErrImagePull", 0),
        ),
        (
            "i",
            "a",
            r#"{"phase":"Running","initContainerStatuses":[
                {"name":"i","restartCount":3,"state":{"terminated":{"exitCode":0}}}],
                "containerStatuses":[{"name":"a","ready":true,"restartCount":1,"state":{"running":{}}}]}"#,
            (1, 1, "Running", 1),
        ),
        (
            "s",
            "a",
            r#"{"phase":"Running","initContainerStatuses":[
                {"name":"s","ready":true,"started":true,"restartCount":3,"state":{"running":{}}}],
                "containerStatuses":[{"name":"a","ready":true,"restartCount":1,"state":{"running":{}}}]}"#,
            (2, 2, "Running", 4),
        ),
        (
            "",
            "a",
            r#"{"phase":"Succeeded","containerStatuses":[
                {"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}}]}"#,
            (0, 1, "Completed", 0),
        ),
        (
            "",
            "ab",
            r#"{"phase":"Running","containerStatuses":[
                {"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},
                {"name":"b","ready":true,"state":{"running":{}}}]}"#,
            (1, 2, "NotReady", 0),
        ),
        (
            "",
            "a",
            r#"{"phase":"Failed","containerStatuses":[
                {"name":"a","state":{"terminated":{"exitCode":137,"signal":9}}}]}"#,
            (0, 1, "Signal:9", 0),
        ),
    ];
    for (inits, mains, status, expected) in table {
        let container = |name: char| match name {
            's' => format!(r#"{{"name":"{name}","restartPolicy":"Always"}}"#),
            _ => format!(r#"{{"name":"{name}"}}"#),
        };
        let list = |names: &str| names.chars().map(container).collect::<Vec<_>>().join(",");
        let pod = pod(&format!(
            r#"{{"spec":{{"initContainers":[{}],"containers":[{}]}},"status":{status}}}"#,
            list(inits),
            list(mains)
        ));
        let summary = summarize(&pod);
        let found = (
            summary.ready,
            summary.total,
            summary.status.as_str(),
            summary.restarts,
        );
        assert_eq!(found, *expected, "{status}");
    }
}

#[test]
fn deleted_pod_is_terminating_unless_it_has_ended() {
    for (phase, expected) in [("Running", "Terminating"), ("Failed", "Failed")] {
        let pod = pod(&format!(
            r#"{{"metadata":{{"deletionTimestamp":"2026-01-01T00:00:00Z"}},
                "spec":{{"containers":[]}},"status":{{"phase":"{phase}"}}}}"#
        ));
        assert_eq!(summarize(&pod).status, expected);
    }
}

#[test]
fn restarts_show_the_time_since_the_last() {
    let pod = pod(
        r#"{"spec":{"containers":[{"name":"a"}]},"status":{"containerStatuses":[{"name":"a",
            "restartCount":2,"lastState":{"terminated":{"exitCode":1,"finishedAt":"2026-01-01T00:00:00Z"}}}]}}"#,
    );
    let now = "2026-01-01T00:03:00Z".parse().unwrap();
    assert_eq!(summarize(&pod).restarts(now), "2 (3m ago)");
}
