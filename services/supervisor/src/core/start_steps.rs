//! What is counted of the steps of starts: the time of each on the critical path.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use polylet_kit::cause::{outcome, root};
use polylet_trace::{StepName, TraceSummary};

/// Most steps that are counted apart. The services' own are some fifty; those of other programs have any names.
const MAX_STEPS: usize = 200;

/// What a series of the counts is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StepLabels {
    /// The service that recorded the step; empty for what is not one step.
    pub service: String,
    /// Its name.
    pub step: String,
}

/// The steps that are counted apart: the first ones that occur.
#[derive(Debug, Default)]
pub struct CountedSteps {
    known: BTreeSet<StepName>,
}

impl CountedSteps {
    /// The times to count of a trace, which sum up to its duration; none of one that is no start of a pod that became
    /// ready, as that of others says how long something was waited for, and not how long a start takes.
    pub fn times(&mut self, trace: &TraceSummary) -> BTreeMap<StepLabels, Duration> {
        let mut times = BTreeMap::new();
        if trace.root != root::POD_START || trace.outcome != outcome::READY {
            return times;
        }
        for (step, time) in &trace.steps {
            *times.entry(self.labels(step)).or_default() += *time;
        }
        times
    }

    fn labels(&mut self, step: &StepName) -> StepLabels {
        let without_service = |step: &str| StepLabels {
            service: String::new(),
            step: step.to_owned(),
        };
        if *step == StepName::unattributed() {
            return without_service("(unattributed)");
        }
        if !self.known.contains(step) {
            if self.known.len() >= MAX_STEPS {
                return without_service("(other)");
            }
            self.known.insert(step.clone());
        }
        StepLabels {
            service: step.service.clone(),
            step: step.operation.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn start(outcome: &str, steps: &[(&str, &str, u64)]) -> TraceSummary {
        let step = |(service, operation, time): &(&str, &str, u64)| {
            let name = StepName {
                service: (*service).to_owned(),
                operation: (*operation).to_owned(),
            };
            (name, Duration::from_millis(*time))
        };
        TraceSummary {
            id: [1; 16],
            root: "pod.start".to_owned(),
            uid: String::new(),
            namespace: String::new(),
            name: String::new(),
            shape: String::new(),
            outcome: outcome.to_owned(),
            start: Timestamp::UNIX_EPOCH,
            duration: Duration::from_millis(steps.iter().map(|(.., time)| time).sum()),
            steps: steps.iter().map(step).collect(),
            versions: BTreeMap::new(),
        }
    }

    fn texts(times: BTreeMap<StepLabels, Duration>) -> Vec<String> {
        let times = times.into_iter();
        let text = |(labels, time): (StepLabels, Duration)| {
            format!("{}/{} {}", labels.service, labels.step, time.as_millis())
        };
        times.map(text).collect()
    }

    #[test]
    fn each_step_of_a_start_that_became_ready_counts() {
        let steps = [
            ("", "", 5),
            ("sync-coordinator", "sync.sandbox", 30),
            ("status-reporter", "status.patch", 2),
        ];
        let mut counted = CountedSteps::default();
        assert_eq!(
            texts(counted.times(&start("ready", &steps))),
            [
                "/(unattributed) 5",
                "status-reporter/status.patch 2",
                "sync-coordinator/sync.sandbox 30"
            ]
        );
        for outcome in ["failed", "removed", ""] {
            assert!(counted.times(&start(outcome, &steps)).is_empty());
        }
        let deletion = TraceSummary {
            root: "pod.delete".to_owned(),
            ..start("ready", &steps)
        };
        assert!(counted.times(&deletion).is_empty());
    }

    #[test]
    fn steps_beyond_the_bound_count_together() {
        let mut counted = CountedSteps::default();
        let names: Vec<_> = (0..MAX_STEPS + 3).map(|n| format!("step{n:04}")).collect();
        let steps: Vec<_> = names.iter().map(|name| ("other", &**name, 1)).collect();
        let summary = start("ready", &steps);
        let first = counted.times(&summary);
        assert_eq!(first.len(), MAX_STEPS + 1);
        assert_eq!(texts(first)[0], "/(other) 3");
        let again: Duration = counted.times(&summary).values().sum();
        assert_eq!(again, summary.duration);
    }
}
