//! Which traces are meant, by their summaries.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::summary::TraceSummary;

/// Conditions that must all hold. `None` and no versions: any.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TraceFilter {
    /// The trace ended then or later.
    pub since: Option<Timestamp>,
    /// The trace ended before.
    pub until: Option<Timestamp>,
    /// The pod's namespace.
    pub namespace: Option<String>,
    /// The name of the root, such as `pod.start`.
    pub root: Option<String>,
    /// See [`crate::shape`].
    pub shape: Option<String>,
    /// How the trace ended, as [`TraceSummary::outcome_label`] says it.
    pub outcome: Option<String>,
    /// The trace lasted longer.
    pub slower_than: Option<Duration>,
    /// Versions of services that recorded spans, by service. One without a build (`+…`) means all its builds.
    pub versions: BTreeMap<String, String>,
}

impl TraceFilter {
    /// Whether all conditions hold.
    pub fn selects(&self, trace: &TraceSummary) -> bool {
        let is = |wanted: &Option<String>, value: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        };
        let has_version = |(service, wanted): (&String, &String)| {
            let version = trace.versions.get(service);
            version.is_some_and(|version| is_version(version, wanted))
        };
        self.since.is_none_or(|since| trace.end() >= since)
            && self.until.is_none_or(|until| trace.end() < until)
            && is(&self.namespace, &trace.namespace)
            && is(&self.root, &trace.root)
            && is(&self.shape, &trace.shape)
            && is(&self.outcome, trace.outcome_label())
            && self.slower_than.is_none_or(|limit| trace.duration > limit)
            && self.versions.iter().all(has_version)
    }
}

fn is_version(version: &str, wanted: &str) -> bool {
    let of_build = version.split_once('+').map_or(version, |(of, _)| of);
    version == wanted || of_build == wanted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::summary;

    #[test]
    fn all_conditions_must_hold() {
        let at = |millis| Timestamp::from_millisecond(millis).ok();
        let mut trace = summary(1, 1_000, &[("pleg", "pleg.observe", 500)]);
        trace.outcome = String::new();
        trace.versions = [("pleg".to_owned(), "1.2.0+abc".to_owned())].into();
        let text = |text: &str| Some(text.to_owned());
        let version =
            |version: &str| -> BTreeMap<_, _> { [("pleg".to_owned(), version.to_owned())].into() };
        let any = TraceFilter::default;
        for (filter, is_selected) in [
            (any(), true),
            (
                TraceFilter {
                    since: at(1_500),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    since: at(1_501),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    until: at(1_501),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    until: at(1_500),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    namespace: text("default"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    namespace: text("other"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    root: text("pod.start"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    root: text("pod.delete"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    shape: text("1 container"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    shape: text("2 containers"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    outcome: text("incomplete"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    outcome: text("ready"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    slower_than: Some(Duration::from_millis(499)),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    slower_than: Some(Duration::from_millis(500)),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    versions: version("1.2.0"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    versions: version("1.2.0+abc"),
                    ..any()
                },
                true,
            ),
            (
                TraceFilter {
                    versions: version("1.2.0+abd"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    versions: version("1.2"),
                    ..any()
                },
                false,
            ),
            (
                TraceFilter {
                    root: text("pod.start"),
                    until: at(1),
                    ..any()
                },
                false,
            ),
        ] {
            assert_eq!(filter.selects(&trace), is_selected, "{filter:?}");
        }
    }
}
