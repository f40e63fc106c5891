use super::{Right, right};

const MET_ITS_END: &str = "a probe may meet the end of its container, under both";
const BELIEVED: &str = "the kubelet believes for a while that a container runs that has ended";
const AHEAD: &str = "images are fetched while other things are still waited for";
const EARLY: &str = "how often it was asked before it was ready is chance";

const fn believed(pod: &'static str) -> Right {
    right(
        pod,
        "events",
        "- Normal Killing by kubelet/* of pod *: Stopping container *",
        BELIEVED,
    )
}

const fn ahead(pod: &'static str) -> Right {
    right(
        pod,
        "events",
        "+ Normal Pulled by kubelet/* of pod spec.*ontainers{*}: Container image * already present on machine*",
        AHEAD,
    )
}

pub(super) const RIGHT: &[Right] = &[
    // Containers that start again and again, when their pod is deleted.
    believed("always-*"),
    believed("on-failure-1"),
    believed("end-crashing"),
    believed("own-policy"),
    believed("init-again"),
    believed("sidecar-crashes"),
    believed("unlively"),
    believed("unstarted-again"),
    right(
        "always-*",
        "events",
        "- Warning FailedKillPod by kubelet/* of pod -: error killing pod: failed to \"KillContainer\" *",
        BELIEVED,
    ),
    right(
        "init-again",
        "events",
        "- Warning FailedKillPod by kubelet/* of pod -: error killing pod: failed to \"KillContainer\" *",
        BELIEVED,
    ),
    // Pods that do not come as far with the kubelet.
    ahead("bad-init"),
    ahead("end-init"),
    ahead("end-waiting"),
    ahead("image-volume"),
    ahead("init-again"),
    ahead("init-fails"),
    ahead("init-image"),
    ahead("long-name"),
    ahead("no-claim"),
    ahead("no-handler"),
    ahead("no-path"),
    ahead("no-secret-volume"),
    ahead("sidecar-crashes"),
    ahead("sidecar-unstarted"),
    right(
        "no-claim",
        "events",
        "- Warning FailedMount by kubelet/* of pod -: * unmounted volumes=[it kube-api-access-TOKEN], *",
        "volumes do not wait for each other: only the one that is missing is missing",
    ),
    right(
        "no-claim",
        "events",
        "+ Warning FailedMount by kubelet/* of pod -: * unmounted volumes=[it], *",
        "as above",
    ),
    right(
        "end-waiting",
        "events",
        "- Warning FailedMount by kubelet/* of pod -: * object \"default\"/\"none\" not registered",
        "the kubelet forgets which objects a pod names while it ends, and looks for them once more",
    ),
    right(
        "end-pulling",
        "events",
        "- Warning Failed by kubelet/* of pod spec.containers{main}: *",
        "the kubelet waits for the pull before it ends the pod",
    ),
    right(
        "resize-too-low",
        "events",
        "* Warning ResizeError by kubelet/* below current usage *",
        "it says what is used just then",
    ),
    right(
        "*",
        "events",
        "* Warning Unhealthy by kubelet/* probe errored and resulted in unknown state: *",
        MET_ITS_END,
    ),
    right(
        "sees*",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed:",
        EARLY,
    ),
    right(
        "told-changes",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed:",
        EARLY,
    ),
    right(
        "preempt*",
        "events",
        "* Warning FailedScheduling by -/-/default-scheduler/*",
        "whether there is room when it is looked for first is chance",
    ),
    right(
        "hook-fails",
        "events",
        "* Warning BackOff by kubelet/*: Back-off restarting failed container main *",
        "how often it starts again before its pod is deleted is chance",
    ),
    right(
        "unready-*",
        "events",
        "* Warning Unhealthy by kubelet/* of pod spec.containers{main}: Readiness probe failed: * i/o timeout*",
        "on a machine that is busy nobody refuses in time",
    ),
];
