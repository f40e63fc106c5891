use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use polylet_harness::error::file;
use polylet_harness::{HarnessError, machine};

use crate::run::SpecResult;
use crate::specs::SpecSelection;
use crate::{AgentKind, SuiteKind};

/// Median seconds of each spec that passed.
pub(crate) type Durations = BTreeMap<String, f64>;

/// Results of one spec in all rounds.
#[derive(Debug, Default)]
struct SpecHistory {
    seconds: Vec<f64>,
    /// First lines of the failures.
    failures: Vec<String>,
}

impl SpecHistory {
    fn has_passed(&self) -> bool {
        self.failures.is_empty() && !self.seconds.is_empty()
    }

    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    fn outcome(&self) -> String {
        let (runs, failed) = (self.seconds.len(), self.failures.len());
        match (runs, failed) {
            (0, _) => "not run".to_owned(),
            (_, 0) => "passed".to_owned(),
            (1, _) => "failed".to_owned(),
            _ => format!("failed {failed}/{runs}"),
        }
    }
}

/// Results of all rounds.
#[derive(Debug, Default)]
pub(crate) struct SuiteResults {
    specs: BTreeMap<String, SpecHistory>,
}

impl SuiteResults {
    /// Empty results, in which the selection's names did not run yet.
    pub(crate) fn new(selection: &SpecSelection) -> Self {
        let names = selection.required().iter();
        let specs = names.map(|name| ((*name).to_owned(), SpecHistory::default()));
        Self {
            specs: specs.collect(),
        }
    }

    /// Adds a round.
    pub(crate) fn add(&mut self, results: Vec<SpecResult>) {
        for result in results {
            let history = self.specs.entry(result.name).or_default();
            history.seconds.push(result.seconds);
            history.failures.extend(result.failure);
        }
    }

    /// Whether there are specs, and each passed every time.
    pub(crate) fn all_passed(&self) -> bool {
        !self.specs.is_empty() && self.specs.values().all(SpecHistory::has_passed)
    }

    /// A line for each spec, its failures below it, and the sum.
    pub(crate) fn table(&self, baseline: &Durations) -> String {
        let mut text = format!("{:<12} {:>8} {:>8}  spec\n", "", "seconds", "kubelet");
        for (name, history) in &self.specs {
            let kubelet = baseline.get(name).map(|seconds| format!("{seconds:.1}"));
            let _ = writeln!(
                text,
                "{:<12} {:>8.1} {:>8}  {name}",
                history.outcome(),
                history.median(),
                kubelet.unwrap_or_default(),
            );
            for failure in &history.failures {
                let _ = writeln!(text, "{:31}  {failure}", "");
            }
        }
        let passed = self.specs.values().filter(|spec| spec.has_passed()).count();
        let failed = self.specs.len() - passed;
        // As test programs of cargo end, for those who add up.
        let word = if failed == 0 { "ok" } else { "FAILED" };
        let _ = write!(
            text,
            "test result: {word}. {passed} passed; {failed} failed"
        );
        text
    }

    /// Writes the durations of passed specs beside those of earlier runs.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written.
    pub(crate) fn save(&self, suite: SuiteKind, agent: AgentKind) -> Result<(), HarnessError> {
        let mut durations = durations(suite, agent)?;
        let passed = self.specs.iter().filter(|(_, spec)| spec.has_passed());
        durations.extend(passed.map(|(name, spec)| (name.clone(), spec.median())));
        let path = durations_file(suite, agent);
        let text = serde_json::json!(durations).to_string();
        file("write", &path, fs::write(&path, text))
    }
}

/// The directory of an agent's results of a suite.
pub(crate) fn directory(suite: SuiteKind, agent: AgentKind) -> PathBuf {
    let all = machine::target_dir().join("conformance");
    all.join(suite.name()).join(agent.name())
}

/// Durations of the kubelet, from earlier runs on this machine.
///
/// # Errors
/// Fails if the file exists and cannot be read.
pub(crate) fn baseline(suite: SuiteKind) -> Result<Durations, HarnessError> {
    durations(suite, AgentKind::Kubelet)
}

fn durations_file(suite: SuiteKind, agent: AgentKind) -> PathBuf {
    directory(suite, agent).join("durations.json")
}

fn durations(suite: SuiteKind, agent: AgentKind) -> Result<Durations, HarnessError> {
    let path = durations_file(suite, agent);
    if !path.exists() {
        return Ok(Durations::new());
    }
    let text = file("read", &path, fs::read_to_string(&path))?;
    serde_json::from_str(&text).map_err(|source| HarnessError::Json {
        what: "durations",
        from: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(name: &str, seconds: f64, failure: Option<&str>) -> SpecResult {
        SpecResult {
            name: name.to_owned(),
            seconds,
            failure: failure.map(str::to_owned),
        }
    }

    #[test]
    fn a_spec_passes_if_it_did_so_in_every_round() {
        let mut results = SuiteResults::new(&SpecSelection::Names(vec!["a", "b", "c"]));
        assert!(!results.all_passed());
        results.add(vec![result("a", 2.0, None), result("b", 1.0, None)]);
        results.add(vec![
            result("a", 4.0, None),
            result("b", 1.0, Some("failed: x")),
        ]);
        results.add(vec![result("a", 3.0, None), result("b", 1.0, None)]);
        assert!(!results.all_passed());
        let baseline = Durations::from([("a".to_owned(), 5.0)]);
        let expected = "              seconds  kubelet  spec\n\
                        passed            3.0      5.0  a\n\
                        failed 1/3        1.0           b\n                                 failed: x\n\
                        not run           0.0           c\n\
                        test result: FAILED. 1 passed; 2 failed";
        assert_eq!(results.table(&baseline), expected);
    }

    #[test]
    fn nothing_run_is_no_success() {
        let mut results = SuiteResults::new(&SpecSelection::Matching("x".to_owned()));
        assert!(!results.all_passed());
        results.add(vec![result("x", 1.0, None)]);
        assert!(results.all_passed());
    }
}
