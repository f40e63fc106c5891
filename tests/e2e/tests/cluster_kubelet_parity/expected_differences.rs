//! Expected differences, with their reasons.

use super::shape::ExpectedDifference;

/// All expected differences.
pub(crate) fn all() -> Vec<ExpectedDifference> {
    vec![
        (
            "Node status nodeInfo kubeletVersion: *",
            "Polylet appends its own version after the plus sign",
        ),
        (
            "CSINode fields of * f:spec f:drivers: {}",
            "an empty list instead of none: the generated API types always serialize it",
        ),
        (
            "event Pod *less Normal Pulled *",
            "Polylet pulls images while volumes are being mounted",
        ),
        (
            "event Pod staged Normal Pulled spec.containers{main}: *",
            "Polylet pulls images of later containers while earlier ones run",
        ),
        (
            "event Pod claimless Warning FailedMount : *unmounted volumes=[c kube-api-access-*",
            "Polylet mounts volumes independently: only the missing volume is reported",
        ),
        (
            "event Pod crashes Normal Killing *",
            "for a second the kubelet may treat an exited container as running",
        ),
        (
            "event Pod wrong Warning Unhealthy *: connect: connection refused",
            "whether the server listens at the first probe varies",
        ),
        (
            "event Pod * Warning Unhealthy *resulted in unknown state: *",
            "a probe may run while its pod terminates, under both agents",
        ),
        (
            "event Pod slow Warning Unhealthy *Readiness probe failed:",
            "as above: the probe is killed with its container and has no output",
        ),
        (
            "event Pod un* Normal Killing *: Stopping container main",
            "whether a crash-looping container runs when its pod is deleted varies",
        ),
        (
            "event Pod *less Warning FailedMount : MountVolume.SetUp failed for volume * : object \"NS\"/\"absent\" not registered",
            "the kubelet unregisters the objects of a terminating pod and then tries to mount them once more",
        ),
        (
            "event Pod unlinked Warning Unhealthy *: dial tcp IP:83: i/o timeout",
            "on a busy machine the connection times out before it is refused",
        ),
        (
            "event Pod late *",
            "on a busy machine the deadline may pass before the container starts",
        ),
        (
            "Node fields of \"kubelet\" by \"Update\" status: *Time: {}",
            "writes within one second have the same timestamp",
        ),
        (
            "event Pod * Warning Unhealthy * probe errored and resulted in unknown state: * context canceled",
            "the kubelet reports probes that it cancels itself when their pod terminates",
        ),
        (
            "form of events of a Node involvedObject uid: *",
            "kubectl selects node events by the node name as uid; the kubelet of this release sets no uid",
        ),
        (
            "form of events of a Pod involvedObject resourceVersion: *",
            "services receive pods without the resource versions of their objects",
        ),
    ]
}
