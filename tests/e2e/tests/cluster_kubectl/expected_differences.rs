//! Lines that differ from those with a kubelet, with the reasons.

use crate::transcript::ExpectedLine;

/// All expected differences.
pub(crate) fn all() -> Vec<ExpectedLine> {
    vec![
        (
            "get node NODE*v1.36.3*",
            "Polylet appends its own version after the plus sign",
        ),
        ("describe node NODE:   Kubelet Version:*", "as above"),
        (
            "describe node NODE:   *  AGE  kubelet  *",
            "kubectl selects node events by the node name as uid; the kubelet of this release sets no uid",
        ),
        (
            "describe node NODE: Events:*",
            "as above: there are none with a kubelet",
        ),
        (
            "describe node NODE:   Type  Reason  Age  From  Message",
            "as above",
        ),
        (
            "describe node NODE:   ----  ------  ----  ----  -------",
            "as above",
        ),
        (
            "describe pod late:   Normal  Pulled  AGE  kubelet  spec.containers{main}: *",
            "Polylet pulls images of later containers while earlier ones run",
        ),
        (
            "cp web:/tmp/none DIR/none: tar: *",
            "kubectl may end before it has printed what tar wrote to its standard error",
        ),
        (
            "get pods -w * -l name=web: MODIFIED web 1/2 Running 0",
            "the first readiness probe may succeed before the status says that the container runs",
        ),
        (
            "describe pod crash:     Restart Count:  *",
            "when the container is looked at depends on the machine",
        ),
        (
            "get pod crash: crash  0/1  *",
            "a kubelet says that a container waits when it synchronizes the pod again, Polylet at once",
        ),
        ("describe pod crash:     State:  *", "as above"),
        ("describe pod crash:       *", "as above"),
        (
            "logs *--previous*: unable to retrieve container logs for *",
            "a kubelet may have removed the previous container once the present one has ended, too",
        ),
        ("logs *--previous*: attempt", "as above"),
        (
            "get pods -w * -l name=web: MODIFIED web * Init:0/1 0",
            "the init container may have ended before the status says that it runs",
        ),
        (
            "get pods -w * -l name=web: MODIFIED web * PodInitializing 0",
            "the containers may run before the status says that the last init container has ended",
        ),
        (
            "get pod polite -w *: MODIFIED polite 0/1 Terminating 0",
            "Polylet says that the containers have ended before the sandbox has",
        ),
        (
            "describe pod web:   Normal  ResizeCompleted *\"cpu\":\"50m\"*\"generation\":2}",
            "the kubelet may report a resize as completed, with the former resources, before it begins",
        ),
        (
            "*/proxy/healthz?verbose: [+]device-plugin ok",
            "device plugins are not implemented",
        ),
    ]
}
