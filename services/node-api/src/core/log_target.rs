//! Which instance of a container a log request means, by upstream's rules and with its messages.

use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};

use super::pods::container_statuses;

/// One instance of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerInstance {
    pub(crate) restart_count: i32,
    /// Without the prefix with the runtime's name.
    pub(crate) id: String,
}

/// Selects the running instance, or the last one that ended; with `previous` the one before.
///
/// # Errors
/// Why there is no log: the message of a 400 response.
pub(crate) fn select(
    status: &PodStatus,
    pod: &str,
    container: &str,
    previous: bool,
) -> Result<ContainerInstance, String> {
    let found = container_statuses(status).find(|status| status.name == container);
    let Some(found) = found else {
        return Err(format!(
            "container {container:?} in pod {pod:?} is not available"
        ));
    };
    let state = found.state.as_ref();
    let terminated = state.and_then(|state| state.terminated.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref());
    let last = found.last_state.as_ref();
    let last = last.and_then(|last| last.terminated.as_ref());
    let last_id = last.and_then(|last| id(last.container_id.as_deref()));
    let instance = |id: String, restart_count: i32| ContainerInstance {
        restart_count: restart_count.max(0),
        id,
    };
    if previous {
        // A container that waits has the count of the instance that ended.
        let count = found.restart_count - i32::from(waiting.is_none());
        return last_id.map(|id| instance(id, count)).ok_or_else(|| {
            format!("previous terminated container {container:?} in pod {pod:?} not found")
        });
    }
    let ended = || format!("container {container:?} in pod {pod:?} is terminated");
    let count = found.restart_count;
    if state.is_some_and(|state| state.running.is_some()) {
        let id = id(found.container_id.as_deref()).ok_or_else(ended)?;
        return Ok(instance(id, count));
    }
    if terminated.is_some() || last.is_some() {
        // Without an id the next instance could not be started.
        let own = terminated.and_then(|ended| id(ended.container_id.as_deref()));
        let id = own.or(last_id).ok_or_else(ended)?;
        return Ok(instance(id, count));
    }
    Err(waiting_message(found, pod))
}

fn id(with_prefix: Option<&str>) -> Option<String> {
    let id = with_prefix?.rsplit("//").next()?;
    (!id.is_empty()).then(|| id.to_owned())
}

fn waiting_message(container: &ContainerStatus, pod: &str) -> String {
    let waiting = container.state.as_ref();
    let waiting = waiting.and_then(|state| state.waiting.as_ref());
    let prefix = format!(
        "container {:?} in pod {pod:?} is waiting to start",
        container.name
    );
    match waiting.map(|waiting| waiting.reason.as_deref().unwrap_or_default()) {
        Some("ErrImagePull") => format!("{prefix}: image can't be pulled"),
        Some("ImagePullBackOff") => format!("{prefix}: trying and failing to pull image"),
        Some(reason) => format!("{prefix}: {reason}"),
        None => format!("{prefix} - no logs yet"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selected(container: Value, previous: bool) -> Result<(i32, String), String> {
        let mut container = container;
        for (field, value) in [
            ("name", json!("c")),
            ("image", json!("i")),
            ("imageID", json!("")),
        ] {
            container[field] = value;
        }
        container["ready"] = json!(false);
        let status: PodStatus =
            serde_json::from_value(json!({"containerStatuses": [container]})).unwrap();
        let instance = select(&status, "p", "c", previous)?;
        Ok((instance.restart_count, instance.id))
    }

    fn exit(id: &str) -> Value {
        json!({"terminated": {"exitCode": 1, "containerID": id}})
    }

    #[test]
    fn the_running_or_last_instance_is_selected() {
        let running = json!({"restartCount": 3, "containerID": "containerd://c3",
            "state": {"running": {}}, "lastState": exit("containerd://c2")});
        assert_eq!(selected(running.clone(), false), Ok((3, "c3".to_owned())));
        assert_eq!(selected(running, true), Ok((2, "c2".to_owned())));
        let waiting = json!({"restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": exit("containerd://c2")});
        assert_eq!(selected(waiting.clone(), false), Ok((2, "c2".to_owned())));
        assert_eq!(selected(waiting, true), Ok((2, "c2".to_owned())));
        let ended = json!({"restartCount": 0, "state": exit("containerd://c0")});
        assert_eq!(selected(ended, false), Ok((0, "c0".to_owned())));
        let never_started = json!({"restartCount": 1, "state": exit(""),
            "lastState": exit("containerd://c1")});
        assert_eq!(selected(never_started, false), Ok((1, "c1".to_owned())));
    }

    #[test]
    fn messages_are_upstreams() {
        let waiting =
            |reason: &str| json!({"restartCount": 0, "state": {"waiting": {"reason": reason}}});
        for (container, previous, message) in [
            (
                waiting("ErrImagePull"),
                false,
                r#"container "c" in pod "p" is waiting to start: image can't be pulled"#,
            ),
            (
                waiting("ImagePullBackOff"),
                false,
                r#"container "c" in pod "p" is waiting to start: trying and failing to pull image"#,
            ),
            (
                waiting("PodInitializing"),
                false,
                r#"container "c" in pod "p" is waiting to start: PodInitializing"#,
            ),
            (
                json!({"restartCount": 0}),
                false,
                r#"container "c" in pod "p" is waiting to start - no logs yet"#,
            ),
            (
                json!({"restartCount": 0, "state": exit("")}),
                false,
                r#"container "c" in pod "p" is terminated"#,
            ),
            (
                json!({"restartCount": 0, "state": {"running": {}}}),
                true,
                r#"previous terminated container "c" in pod "p" not found"#,
            ),
        ] {
            assert_eq!(selected(container, previous), Err(message.to_owned()));
        }
        assert_eq!(
            select(&PodStatus::default(), "p", "c", false),
            Err(r#"container "c" in pod "p" is not available"#.to_owned())
        );
    }
}
