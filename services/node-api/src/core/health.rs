//! Health checks and their output, as upstream's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

/// How long the coordinator or pleg may be out of step before the node counts as unhealthy. A restart or an
/// upgrade takes a fraction of it.
const MAX_OUT_OF_STEP: Duration = Duration::from_secs(60);

/// One health check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CheckResult {
    pub(crate) name: &'static str,
    pub(crate) result: Result<(), String>,
}

/// The output of all checks: whether they passed, and the text. Checks named in `excluded` count as passed.
/// A failure is always told in detail, but without its reason: the endpoint may be public.
pub(crate) fn report(checks: &[CheckResult], verbose: bool, excluded: &[String]) -> (bool, String) {
    let mut unknown: BTreeSet<&str> = excluded.iter().map(String::as_str).collect();
    let mut lines = String::new();
    let mut passed = true;
    for CheckResult { name, result } in checks {
        let line = if unknown.remove(name) {
            format!("[+]{name} excluded: ok\n")
        } else if result.is_ok() {
            format!("[+]{name} ok\n")
        } else {
            passed = false;
            format!("[-]{name} failed: reason withheld\n")
        };
        lines.push_str(&line);
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(",");
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {names}\n"
        ));
    }
    let text = match (passed, verbose) {
        (true, false) => "ok".to_owned(),
        (true, true) => format!("{lines}healthz check passed\n"),
        (false, _) => format!("{lines}healthz check failed\n"),
    };
    (passed, text)
}

/// Since when the services that sync pods are out of step. Times are those of a monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutOfStep {
    since: Option<Duration>,
}

impl OutOfStep {
    /// Takes an observation.
    pub(crate) fn observe(&mut self, in_step: bool, now: Duration) {
        self.since = if in_step {
            None
        } else {
            self.since.or(Some(now))
        };
    }

    /// # Errors
    /// Upstream's message, when they have been out of step for too long.
    pub(crate) fn check(&self, now: Duration) -> Result<(), String> {
        match self.since {
            Some(since) if now.saturating_sub(since) >= MAX_OUT_OF_STEP => {
                Err("sync Loop took longer than expected".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// How often a check had which result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckCounts {
    succeeded: u64,
    failed: u64,
    has_failed: bool,
}

impl CheckCounts {
    /// Counts a result.
    pub(crate) fn count(&mut self, succeeded: bool) {
        self.has_failed = !succeeded;
        self.succeeded += u64::from(succeeded);
        self.failed += u64::from(!succeeded);
    }
}

/// The results of the checks as metrics with upstream's names.
pub(crate) fn slis(counts: &BTreeMap<&str, CheckCounts>) -> String {
    let (mut last, mut total) = (String::new(), String::new());
    for (name, counts) in counts {
        let value = u8::from(!counts.has_failed);
        // Writing to a string does not fail.
        let _ = writeln!(
            last,
            "kubernetes_healthcheck{{name=\"{name}\",type=\"healthz\"}} {value}"
        );
        for (status, count) in [("error", counts.failed), ("success", counts.succeeded)] {
            if count > 0 {
                let _ = writeln!(
                    total,
                    "kubernetes_healthchecks_total{{name=\"{name}\",status=\"{status}\",type=\"healthz\"}} {count}"
                );
            }
        }
    }
    if counts.is_empty() {
        return String::new();
    }
    format!(
        "# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n\
         # TYPE kubernetes_healthcheck gauge\n{last}\
         # HELP kubernetes_healthchecks_total [STABLE] This metric records the results of all healthcheck.\n\
         # TYPE kubernetes_healthchecks_total counter\n{total}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let mut counts = BTreeMap::new();
        assert_eq!(slis(&counts), "");
        let mut check = CheckCounts::default();
        for succeeded in [true, true, false] {
            check.count(succeeded);
        }
        counts.insert("syncloop", check);
        let text = slis(&counts);
        for line in [
            "kubernetes_healthcheck{name=\"syncloop\",type=\"healthz\"} 0",
            "kubernetes_healthchecks_total{name=\"syncloop\",status=\"error\",type=\"healthz\"} 1",
            "kubernetes_healthchecks_total{name=\"syncloop\",status=\"success\",type=\"healthz\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }

    #[test]
    fn output_of_checks() {
        let check = |name, result: Result<(), &str>| CheckResult {
            name,
            result: result.map_err(str::to_owned),
        };
        let good = [check("ping", Ok(())), check("syncloop", Ok(()))];
        let bad = [check("ping", Ok(())), check("syncloop", Err("secret"))];
        let excluded = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| (*name).to_owned()).collect()
        };
        for (checks, verbose, excluding, passed, text) in [
            (&good, false, &[][..], true, "ok"),
            (
                &good,
                true,
                &[],
                true,
                "[+]ping ok\n[+]syncloop ok\nhealthz check passed\n",
            ),
            (
                &bad,
                false,
                &[],
                false,
                "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n",
            ),
            (&bad, false, &["syncloop"], true, "ok"),
            (
                &bad,
                true,
                &["syncloop", "other"],
                true,
                "[+]ping ok\n[+]syncloop excluded: ok\n\
                 warn: some health checks cannot be excluded: no matches for \"other\"\n\
                 healthz check passed\n",
            ),
        ] {
            let found = report(checks, verbose, &excluded(excluding));
            assert_eq!(found, (passed, text.to_owned()));
        }
    }

    #[test]
    fn services_out_of_step_are_unhealthy_after_a_while() {
        let seconds = Duration::from_secs;
        let mut services = OutOfStep::default();
        assert_eq!(services.check(seconds(1000)), Ok(()));
        services.observe(false, seconds(1000));
        services.observe(false, seconds(1030));
        assert_eq!(services.check(seconds(1059)), Ok(()));
        assert!(services.check(seconds(1060)).is_err());
        services.observe(true, seconds(1070));
        services.observe(false, seconds(1080));
        assert_eq!(services.check(seconds(1100)), Ok(()));
    }
}
