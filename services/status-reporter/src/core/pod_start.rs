//! How long pods take to start: upstream's PodStartupLatencyTracker, for the pods of the API server.
//!
//! A start ends when the watch delivers the status in which all containers run, after this node has
//! patched it. Mirror pods are not tracked: they are created when their static pods run already.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PodStatus, Volume};
use polylet_model::constants::phase;
use polylet_model::pod::ContainerKind;
use polylet_model::status::{ContainerPhase, RuntimeContainer};
use polylet_model::{Manifest, PodUid};

/// The starts in progress.
#[derive(Debug, Default)]
pub(crate) struct PodStarts {
    pods: BTreeMap<PodUid, PodStart>,
    /// Pods that could not be scheduled at once; they never count.
    excluded: BTreeSet<PodUid>,
    first_network_pod_started: bool,
}

#[derive(Debug, Default)]
struct PodStart {
    /// This node has patched a status in which all containers run.
    patched: bool,
    /// When the watch delivered such a status first.
    watched_at: Option<Timestamp>,
    recorded: bool,
}

/// A start that has ended, in seconds. Clocks differ: durations may be negative.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StartDuration {
    /// Since the pod's creation.
    pub(crate) total: f64,
    /// Without pulls of images and runs of init containers; `None` for a stateful pod.
    pub(crate) sli: Option<f64>,
    /// It is the first pod of this process with a network of its own.
    pub(crate) first_network_pod: bool,
}

impl PodStarts {
    /// Handles a pod as the watch delivers it.
    pub(crate) fn on_watched(&mut self, uid: &PodUid, status: &PodStatus, now: Timestamp) {
        if matches!(
            status.phase.as_deref(),
            Some(phase::FAILED | phase::SUCCEEDED)
        ) {
            self.pods.remove(uid);
            return;
        }
        if is_unschedulable(status) {
            self.pods.remove(uid);
            self.excluded.insert(uid.clone());
            return;
        }
        let Some(pod) = self.pods.get_mut(uid) else {
            // A pod that was accepted before started before, too.
            if status.start_time.is_none() && !self.excluded.contains(uid) {
                self.pods.insert(uid.clone(), PodStart::default());
            }
            return;
        };
        if all_containers_run(status) {
            pod.watched_at.get_or_insert(now);
        }
    }

    /// Handles a status that this node has patched.
    pub(crate) fn on_patched(&mut self, uid: &str, status: &PodStatus) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.patched |= all_containers_run(status);
        }
    }

    /// The duration of the pod's start, once: when it has ended.
    pub(crate) fn take_ended(
        &mut self,
        uid: &str,
        manifest: &Manifest,
        excluded: Duration,
    ) -> Option<StartDuration> {
        let pod = self.pods.get_mut(uid)?;
        let watched_at = pod.watched_at.filter(|_| pod.patched && !pod.recorded)?;
        let created_at = manifest.creation_timestamp()?;
        pod.recorded = true;
        let total = watched_at.duration_since(created_at).as_secs_f64();
        let volumes = manifest.spec().volumes.iter().flatten();
        let is_stateful = volumes.into_iter().any(|volume| !is_stateless(volume));
        let has_network = manifest.spec().host_network != Some(true);
        let is_first = !is_stateful && has_network && !self.first_network_pod_started;
        self.first_network_pod_started |= is_first;
        Some(StartDuration {
            total,
            sli: (!is_stateful).then_some(total - excluded.as_secs_f64()),
            first_network_pod: is_first,
        })
    }

    /// Forgets a pod that is removed.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.excluded.remove(uid);
    }
}

/// How long the pod's init containers ran that have ended, without sidecars.
pub(crate) fn init_container_time(
    manifest: &Manifest,
    containers: &[RuntimeContainer],
) -> Duration {
    let is_init = |container: &&RuntimeContainer| {
        let known = manifest.container(&container.name);
        known.is_some_and(|(kind, _)| kind == ContainerKind::Init)
    };
    let run = |container: &RuntimeContainer| {
        let ended = container.phase == ContainerPhase::Exited;
        let times = container.started_at.zip(container.finished_at);
        let (from, to) = times.filter(|_| ended)?;
        Duration::try_from(to.duration_since(from)).ok()
    };
    containers.iter().filter(is_init).filter_map(run).sum()
}

/// Whether each container has started.
fn all_containers_run(status: &PodStatus) -> bool {
    let containers = status.container_statuses.iter().flatten();
    containers.into_iter().all(|container| {
        let running = container.state.as_ref();
        let running = running.and_then(|state| state.running.as_ref());
        running.is_some_and(|running| running.started_at.is_some())
    })
}

fn is_unschedulable(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|condition| condition.type_ == "PodScheduled" && condition.status == "False")
}

/// Whether the volume makes a pod no stateful one, by the definition of the service level indicator.
fn is_stateless(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.downward_api.is_some()
        || volume.empty_dir.is_some()
        || volume.projected.is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const CREATED: &str = "2026-01-01T00:00:00Z";

    fn at(second: i64) -> Timestamp {
        CREATED.parse::<Timestamp>().unwrap() + Duration::from_secs(second.unsigned_abs())
    }

    fn manifest(spec: Value) -> Manifest {
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "p", "namespace": "n", "uid": "u", "creationTimestamp": CREATED },
            "spec": { "containers": [{ "name": "a", "image": "i" }] },
        });
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    fn status(status: Value) -> PodStatus {
        serde_json::from_value(status).unwrap()
    }

    fn pending() -> PodStatus {
        status(json!({ "phase": "Pending" }))
    }

    fn running() -> PodStatus {
        status(
            json!({ "phase": "Running", "startTime": CREATED, "containerStatuses": [{
            "name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
            "state": { "running": { "startedAt": CREATED } },
        }] }),
        )
    }

    fn start(starts: &mut PodStarts, uid: &str) {
        starts.on_watched(&uid.into(), &pending(), at(1));
        starts.on_patched(uid, &running());
        starts.on_watched(&uid.into(), &running(), at(5));
    }

    #[test]
    fn a_start_counts_once_without_pulls_and_init_containers() {
        let mut starts = PodStarts::default();
        let plain = manifest(json!({}));
        let excluded = Duration::from_secs(3);
        starts.on_watched(&"u".into(), &pending(), at(1));
        assert_eq!(starts.take_ended("u", &plain, excluded), None);
        starts.on_patched("u", &pending());
        starts.on_patched("u", &running());
        assert_eq!(starts.take_ended("u", &plain, excluded), None);
        starts.on_watched(&"u".into(), &running(), at(5));
        let expected = StartDuration {
            total: 5.0,
            sli: Some(2.0),
            first_network_pod: true,
        };
        assert_eq!(starts.take_ended("u", &plain, excluded), Some(expected));
        starts.on_watched(&"u".into(), &running(), at(9));
        assert_eq!(starts.take_ended("u", &plain, excluded), None);

        start(&mut starts, "second");
        let second = starts.take_ended("second", &plain, Duration::ZERO).unwrap();
        assert!(!second.first_network_pod);
    }

    #[test]
    fn the_watch_may_be_faster_than_the_response_to_the_patch() {
        let mut starts = PodStarts::default();
        starts.on_watched(&"u".into(), &pending(), at(1));
        starts.on_watched(&"u".into(), &running(), at(4));
        assert_eq!(
            starts.take_ended("u", &manifest(json!({})), Duration::ZERO),
            None
        );
        starts.on_patched("u", &running());
        let ended = starts.take_ended("u", &manifest(json!({})), Duration::ZERO);
        assert_eq!(ended.unwrap().total, 4.0);
    }

    #[test]
    fn pods_that_started_before_or_had_to_wait_do_not_count() {
        let plain = manifest(json!({}));
        let mut starts = PodStarts::default();
        // It was accepted before this process.
        starts.on_watched(&"u".into(), &running(), at(1));
        starts.on_patched("u", &running());
        starts.on_watched(&"u".into(), &running(), at(2));
        assert_eq!(starts.take_ended("u", &plain, Duration::ZERO), None);

        let waits = json!({ "type": "PodScheduled", "status": "False" });
        let waits = status(json!({ "phase": "Pending", "conditions": [waits] }));
        starts.on_watched(&"waits".into(), &waits, at(1));
        start(&mut starts, "waits");
        assert_eq!(starts.take_ended("waits", &plain, Duration::ZERO), None);
        starts.remove("waits");
        start(&mut starts, "waits");
        assert!(starts.take_ended("waits", &plain, Duration::ZERO).is_some());

        starts.on_watched(&"ended".into(), &pending(), at(1));
        starts.on_watched(
            &"ended".into(),
            &status(json!({ "phase": "Failed" })),
            at(2),
        );
        starts.on_patched("ended", &running());
        starts.on_watched(&"ended".into(), &running(), at(3));
        assert_eq!(starts.take_ended("ended", &plain, Duration::ZERO), None);
    }

    #[test]
    fn stateful_pods_and_those_of_the_hosts_network_differ() {
        for (spec, sli, first) in [
            (
                json!({ "volumes": [{ "name": "v", "emptyDir": {} }] }),
                true,
                true,
            ),
            (
                json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] }),
                false,
                false,
            ),
            (json!({ "hostNetwork": true }), true, false),
        ] {
            let mut starts = PodStarts::default();
            start(&mut starts, "u");
            let ended = starts
                .take_ended("u", &manifest(spec), Duration::ZERO)
                .unwrap();
            assert_eq!((ended.sli.is_some(), ended.first_network_pod), (sli, first));
        }
    }

    #[test]
    fn init_containers_count_while_they_ran() {
        let sidecar = json!({ "name": "side", "image": "i", "restartPolicy": "Always" });
        let init = json!([{ "name": "init", "image": "i" }, sidecar]);
        let manifest = manifest(json!({ "initContainers": init }));
        let container = |name: &str, ended: bool| RuntimeContainer {
            id: name.into(),
            sandbox_id: "s".into(),
            name: name.to_owned(),
            attempt: 0,
            image: String::new(),
            image_id: String::new(),
            phase: if ended {
                ContainerPhase::Exited
            } else {
                ContainerPhase::Running
            },
            actual: None,
            user: None,
            exit_code: 0,
            reason: String::new(),
            message: String::new(),
            created_at: None,
            started_at: Some(at(1)),
            finished_at: ended.then(|| at(4)),
        };
        let all = ["init", "init", "side", "a"].map(|name| container(name, true));
        assert_eq!(init_container_time(&manifest, &all), Duration::from_secs(6));
        let running = [container("init", false)];
        assert_eq!(init_container_time(&manifest, &running), Duration::ZERO);
    }
}
