use std::collections::BTreeSet;

use super::Lives;

/// A difference that is right.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// How the pod's name begins; all when empty.
    pub pod: &'static str,
    /// Where: a part of the name of the checkpoint; all when empty.
    pub at: &'static str,
    /// A part of the line.
    pub line: &'static str,
    /// Why.
    pub why: &'static str,
}

/// What one says and the other does not: `-` the kubelet, `+` Polylet.
pub fn differences(kubelet: &Lives, polylet: &Lives, right: &[Right]) -> Vec<String> {
    let mut all = Vec::new();
    for (pod, theirs) in kubelet {
        let Some(ours) = polylet.get(pod) else {
            all.push(format!("{pod}: not under Polylet"));
            continue;
        };
        let none = Vec::new();
        let labels: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
        for at in labels {
            let theirs = theirs.get(at).unwrap_or(&none);
            let ours = ours.get(at).unwrap_or(&none);
            let mut tell = |sign: char, one: &[String], other: &[String]| {
                for line in one.iter().filter(|line| !other.contains(line)) {
                    // What Polylet does not say in passing it was too quick for.
                    if sign == '-' && at == "passing" {
                        continue;
                    }
                    let is = |right: &Right| {
                        pod.starts_with(right.pod)
                            && at.contains(right.at)
                            && line.contains(right.line)
                    };
                    if !right.iter().any(is) {
                        all.push(format!("{pod}, {at}: {sign} {line}"));
                    }
                }
            };
            tell('-', theirs, ours);
            tell('+', ours, theirs);
        }
    }
    all
}

const fn right(
    pod: &'static str,
    at: &'static str,
    line: &'static str,
    why: &'static str,
) -> Right {
    Right { pod, at, line, why }
}

const QUICK: &str = "Polylet tells each state; the kubelet is busy elsewhere while this one stands";
const MOMENT: &str = "what the pod is just at, when it has been still for two seconds, is chance";
const SANDBOX: &str = "Polylet makes the sandbox while volumes are waited for";
const EARLY: &str = "Polylet tells that a pod is on its way before it has judged it";
const LATE: &str = "the kubelet reads the pod's cgroup back, as it was a while ago, and tells the \
    kernel's word for no limit; Polylet tells what was given";
const TRUTH: &str = "Polylet tells the ends that the containers had before all were removed";

/// Differences that are right, each with its reason.
pub const RIGHT: &[Right] = &[
    right("", "", "status.resources", LATE),
    right("", "passing", "state.terminated", QUICK),
    right(
        "",
        "passing",
        "state.waiting.reason=CrashLoopBackOff",
        QUICK,
    ),
    right(
        "",
        "passing",
        "state.waiting.reason=RunContainerError",
        QUICK,
    ),
    right("", "passing", "state.running", QUICK),
    right("", "passing", "condition Ready True", QUICK),
    right("", "passing", "condition ContainersReady True", QUICK),
    right("", "passing", "phase Running", QUICK),
    right("", "passing", "condition PodScheduled True", EARLY),
    right("", "passing", "condition Initialized True", EARLY),
    right("", "passing", "condition PodReadyToStartContainers", EARLY),
    right("", "passing", "containers with unready status", EARLY),
    right(
        "",
        "passing",
        "state.waiting.reason=ContainerCreating",
        EARLY,
    ),
    right("bad-", "fails", "state.waiting", MOMENT),
    right("hook-fails", "hook failed", "", MOMENT),
    right("end-crashing", "the end", "", MOMENT),
    right("own-policy", "the end", "lastState", MOMENT),
    right("no-", "", "PodReadyToStartContainers.status", SANDBOX),
    right("no-", "", "status.podIP", SANDBOX),
    right(
        "end-waiting",
        "",
        "PodReadyToStartContainers.status",
        SANDBOX,
    ),
    right("end-waiting", "", "status.podIP", SANDBOX),
    right("long-name", "", "", "how far its sandbox comes is chance"),
    right("rule-all", "", "lastState", TRUTH),
    right("rule-all", "", "restartCount", MOMENT),
    right(
        "debugging",
        "the end",
        "ephemeralContainerStatuses",
        "it ends by TERM, or by the end \
        of the container whose processes it shares: whichever is first",
    ),
    right(
        "resize-deferred",
        "the end",
        "",
        "the CPU that it waits for may be free by then",
    ),
    right(
        "resize-too-low",
        "",
        "PodResizeInProgress",
        "the message says what is used just then",
    ),
    right(
        "static",
        "the end",
        "",
        "the kubelet takes the mirror away before the pod has ended",
    ),
    right("sees-host", "view", "/proc/", "other people's processes"),
    right(
        "",
        "view",
        "symbolic link",
        "upstream gives tokens' links to the user, others' not",
    ),
];
