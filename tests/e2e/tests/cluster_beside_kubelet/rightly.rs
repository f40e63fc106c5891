//! Differences that are right, and why.

use super::shape::Right;

/// All of them.
pub(crate) fn all() -> Vec<Right> {
    vec![
        (
            "Node status nodeInfo kubeletVersion: *",
            "it says what really runs, behind the plus sign",
        ),
        (
            "Node status declaredFeatures has: ExtendWebSocketsToKubelet",
            "the node API does not stream yet: the API server is to translate",
        ),
        (
            "CSINode fields of * f:spec f:drivers: {}",
            "an empty list instead of none: the API's types here have no other word",
        ),
        (
            "event Pod *less Normal Pulled *",
            "images are fetched while volumes are still waited for",
        ),
        (
            "event Pod staged Normal Pulled spec.containers{main}: *",
            "images of later containers are fetched while earlier ones run",
        ),
        (
            "event Pod claimless Warning FailedMount : *unmounted volumes=[c kube-api-access-*",
            "volumes do not wait for each other: only the one that is missing is missing",
        ),
        (
            "event Pod crashes Normal Killing *",
            "for a second the kubelet may believe that a container that ended still runs",
        ),
        (
            "event Pod wrong Warning Unhealthy *: connect: connection refused",
            "whether the server is up when it is asked first is chance",
        ),
        (
            "event Pod * Warning Unhealthy *resulted in unknown state: *",
            "a probe may meet the end of its pod, under both",
        ),
        (
            "event Pod slow Warning Unhealthy *Readiness probe failed:",
            "as above: it is killed with its container and has said nothing",
        ),
        (
            "event Pod un* Normal Killing *: Stopping container main",
            "whether a container that starts again and again runs when its pod ends is chance",
        ),
        (
            "event Pod *less Warning FailedMount : MountVolume.SetUp failed for volume * : object \"NS\"/\"absent\" not registered",
            "the kubelet forgets which objects a pod names while it ends, and looks for them once more",
        ),
        (
            "event Pod unlinked Warning Unhealthy *: dial tcp IP:83: i/o timeout",
            "on a machine that is busy nobody refuses in time",
        ),
        (
            "event Pod late *",
            "on a machine that is busy its time may be over before its start",
        ),
        (
            "Node fields of \"kubelet\" by \"Update\" status: *Time: {}",
            "writes within one second change no time",
        ),
        (
            "event Pod * Warning Unhealthy * probe errored and resulted in unknown state: * context canceled",
            "the kubelet complains of probes that it cuts off itself when their pod ends",
        ),
        (
            "form of events of a Node involvedObject uid: *",
            "kubectl finds the node's events by its name as their uid; the kubelet of this release writes none",
        ),
        (
            "form of events of a Pod involvedObject resourceVersion: *",
            "services hear of pods, not of the versions of their objects",
        ),
    ]
}
