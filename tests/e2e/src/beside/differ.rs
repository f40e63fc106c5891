use std::collections::BTreeSet;

use super::Lives;
use super::passing::Said;

/// A difference that is right.
#[derive(Debug, Clone, Copy)]
pub struct Right {
    /// How the pod's name begins; all when empty.
    pub pod: &'static str,
    /// Where: a part of the name of the checkpoint; all when empty.
    pub at: &'static str,
    /// A part of the line, behind who says it: `-` the kubelet, `+` Polylet.
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
        let said = Said::of(theirs.get("passing").unwrap_or(&none));
        let labels: BTreeSet<_> = theirs.keys().chain(ours.keys()).collect();
        for at in labels {
            let theirs = theirs.get(at).unwrap_or(&none);
            let ours = ours.get(at).unwrap_or(&none);
            let mut tell = |sign: char, one: &[String], other: &[String]| {
                for line in one.iter().filter(|line| !other.contains(line)) {
                    // What one of them does not say in passing it was too quick for, or too slow.
                    if at == "passing" && (sign == '-' || said.amounts_to(line)) {
                        continue;
                    }
                    let line = format!("{sign} {line}");
                    let is = |right: &Right| {
                        pod.starts_with(right.pod)
                            && at.contains(right.at)
                            && line.contains(right.line)
                    };
                    if !right.iter().any(is) {
                        all.push(format!("{pod}, {at}: {line}"));
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

const MOMENT: &str = "what the pod is just at, when it is looked at, is chance";
const TIMES: &str = "how often it started by then is chance";
const CGROUP: &str = "the kubelet reads the pod's cgroup back, as it was a while ago or when it is gone, \
    and tells the kernel's word for no limit; Polylet tells what was given";
const TRUTH: &str = "Polylet tells the ends that the containers had before all were removed";

/// Differences that are right, each with its reason.
pub const RIGHT: &[Right] = &[
    right("", "", "- status.resources={}", CGROUP),
    right(
        "",
        "",
        "- status.resources.limits.memory=9007199254740988Ki",
        CGROUP,
    ),
    right("", "the end", "+ status.resources.", CGROUP),
    right("", "ended", "+ status.resources.", CGROUP),
    right(
        "bad-command-never",
        "passing",
        "+ phase Running - -",
        "the kubelet tells that it tried when it has given up",
    ),
    right("resize-", "", " status.resources.", CGROUP),
    right(
        "bad-",
        "fails",
        " status.containerStatuses[0].state.waiting.",
        MOMENT,
    ),
    right(
        "bad-init",
        "fails",
        " status.initContainerStatuses[0].state.waiting.",
        MOMENT,
    ),
    right("always-", "", "restartCount=", TIMES),
    right("always-", "", "containerID=container ", TIMES),
    right("on-failure-1", "the end", "restartCount=", TIMES),
    right("on-failure-1", "the end", "containerID=container ", TIMES),
    right("init-again", "the end", "restartCount=", TIMES),
    right("init-again", "the end", "containerID=container ", TIMES),
    right("unlively", "the end", "restartCount=", TIMES),
    right("unlively", "the end", "containerID=container ", TIMES),
    right("unstarted-again", "the end", "restartCount=", TIMES),
    right(
        "unstarted-again",
        "the end",
        "containerID=container ",
        TIMES,
    ),
    right("hook-fails", "the end", "restartCount=", TIMES),
    right("hook-fails", "the end", "containerID=container ", TIMES),
    right("end-crashing", "the end", "restartCount=", TIMES),
    right("end-crashing", "the end", "containerID=container ", TIMES),
    right("end-crashing", "the end", "lastState", MOMENT),
    right("own-policy", "the end", "lastState", MOMENT),
    right("rule-all", "", "lastState", TRUTH),
    right("rule-all", "", "restartCount", MOMENT),
    right(
        "rule-all",
        "passing",
        "+ condition AllContainersRestarting True",
        MOMENT,
    ),
    right(
        "resize-",
        "passing",
        "+ condition PodResizeInProgress True - -",
        "the kubelet has done it before it has told of it",
    ),
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
    right(
        "long-name",
        "",
        "PodReadyToStartContainers",
        "how far its sandbox comes is chance",
    ),
    right("long-name", "", "status.podIP", "as above"),
    right("sees-host", "view", "/proc/", "other people's processes"),
    right(
        "",
        "view",
        "symbolic link",
        "upstream gives tokens' links to the user, others' not",
    ),
    right(
        "sees-names",
        "view",
        " options ",
        "the kubelet keeps the options in a map, whose order is chance",
    ),
];
