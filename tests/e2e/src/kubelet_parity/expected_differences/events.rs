use super::{ExpectedDifference, expected};

const CONTAINER_TERMINATED: &str =
    "a probe may run while its container terminates, under both agents";
const STALE_CONTAINER: &str = "for a while the kubelet treats an exited container as running";
const PARALLEL_PULL: &str = "Polylet pulls images while other preconditions are pending";
const EARLY_PROBES: &str = "the number of probes before readiness varies";
const KILLED_WHILE_PROBED: &str = "a probe fails when its container ends while it runs";

const fn stale_container(pod: &'static str) -> ExpectedDifference {
    expected(
        pod,
        "events",
        "- Normal Killing by kubelet/* of pod *: Stopping container *",
        STALE_CONTAINER,
    )
}

const fn parallel_pull(pod: &'static str) -> ExpectedDifference {
    expected(
        pod,
        "events",
        "+ Normal Pulled by kubelet/* of pod spec.*ontainers{*}: Container image * already present on machine*",
        PARALLEL_PULL,
    )
}

pub(super) const EXPECTED: &[ExpectedDifference] = &[
    // Crash-looping containers whose pod is deleted.
    stale_container("always-*"),
    stale_container("on-failure-1"),
    stale_container("end-crashing"),
    stale_container("own-policy"),
    stale_container("init-again"),
    stale_container("sidecar-crashes"),
    stale_container("unlively"),
    stale_container("unstarted-again"),
    expected(
        "always-*",
        "events",
        "- Warning FailedKillPod by kubelet/* of pod -: error killing pod: failed to \"KillContainer\" *",
        STALE_CONTAINER,
    ),
    expected(
        "init-again",
        "events",
        "- Warning FailedKillPod by kubelet/* of pod -: error killing pod: failed to \"KillContainer\" *",
        STALE_CONTAINER,
    ),
    // Pods that make less progress with the kubelet.
    parallel_pull("bad-init"),
    parallel_pull("end-init"),
    parallel_pull("end-waiting"),
    parallel_pull("image-volume"),
    parallel_pull("init-again"),
    parallel_pull("init-fails"),
    parallel_pull("init-image"),
    parallel_pull("long-name"),
    parallel_pull("no-claim"),
    parallel_pull("no-handler"),
    parallel_pull("no-path"),
    parallel_pull("no-secret-volume"),
    parallel_pull("sidecar-crashes"),
    parallel_pull("sidecar-unstarted"),
    expected(
        "no-claim",
        "events",
        "- Warning FailedMount by kubelet/* of pod -: * unmounted volumes=[it kube-api-access-TOKEN], *",
        "Polylet mounts volumes independently: only the missing volume is reported",
    ),
    expected(
        "no-claim",
        "events",
        "+ Warning FailedMount by kubelet/* of pod -: * unmounted volumes=[it], *",
        "as above",
    ),
    expected(
        "*",
        "events",
        "- Warning FailedMount by kubelet/* of pod -: *object \"default\"/* not registered*",
        "the kubelet unregisters the objects of a terminating pod and then tries to mount them once more",
    ),
    expected(
        "end-pulling",
        "events",
        "- Warning Failed by kubelet/* of pod spec.containers{main}: *",
        "the kubelet waits for the pull before it terminates the pod",
    ),
    expected(
        "resize-too-low",
        "events",
        "* Warning ResizeError by kubelet/* below current usage *",
        "the message contains the current usage",
    ),
    expected(
        "*",
        "events",
        "* Warning Unhealthy by kubelet/* probe errored and resulted in unknown state: *",
        CONTAINER_TERMINATED,
    ),
    expected(
        "sees*",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed:",
        EARLY_PROBES,
    ),
    expected(
        "downward-changes",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed:",
        EARLY_PROBES,
    ),
    expected(
        "sidecar-done",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.initContainers{beside}: Readiness probe failed:",
        KILLED_WHILE_PROBED,
    ),
    expected(
        "sidecar-failed",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.initContainers{beside}: Readiness probe failed:",
        KILLED_WHILE_PROBED,
    ),
    expected(
        "preempt*",
        "events",
        "* Warning FailedScheduling by -/-/default-scheduler/*",
        "whether the first scheduling attempt succeeds varies",
    ),
    expected(
        "hook-fails",
        "events",
        "* Warning BackOff by kubelet/*: Back-off restarting failed container main *",
        "the number of restarts before the deletion varies",
    ),
    expected(
        "unready-*",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed: * i/o timeout*",
        "on a busy machine the connection times out before it is refused",
    ),
];
