//! The root of a trace and the pods by which it is found.

use std::borrow::Cow;

use polylet_kit::cause::ROOT_ATTRIBUTE;
use polylet_trace::{POD_NAME, POD_NAMESPACE, POD_UID, SpanRecord};

/// Most pods of a trace.
const MAX_PODS: usize = 8;
/// Between two labels; no name has it.
const SEPARATOR: char = '\0';

/// The name of the root, then uid, namespace and name of each pod: all in one allocation, as there are many traces.
#[derive(Debug, Default)]
pub(super) struct TraceLabels(Box<str>);

impl TraceLabels {
    /// Adds what a span tells.
    pub(super) fn add(&mut self, record: &SpanRecord) {
        let root = label(record.attribute(ROOT_ATTRIBUTE));
        if self.root().is_empty() && !root.is_empty() {
            self.0 = format!("{root}{}", self.0).into();
        }
        let pod = [POD_UID, POD_NAMESPACE, POD_NAME].map(|key| label(record.attribute(key)));
        let is_new = || {
            self.pods()
                .all(|known| known != [&*pod[0], &*pod[1], &*pod[2]])
        };
        if !pod[0].is_empty() && self.pods().count() < MAX_PODS && is_new() {
            let [uid, namespace, name] = pod;
            self.0 = format!(
                "{}{SEPARATOR}{uid}{SEPARATOR}{namespace}{SEPARATOR}{name}",
                self.0
            )
            .into();
        }
    }

    /// The name of the root; empty if it is not known.
    pub(super) fn root(&self) -> &str {
        self.0.split(SEPARATOR).next().unwrap_or_default()
    }

    /// The uid of the pod with this uid, name or `namespace/name`.
    pub(super) fn pod(&self, query: &str) -> Option<&str> {
        let is_meant = |[uid, namespace, name]: &[&str; 3]| {
            query == *uid || query == *name || query.split_once('/') == Some((namespace, name))
        };
        self.pods().find(is_meant).map(|[uid, ..]| uid)
    }

    fn pods(&self) -> impl Iterator<Item = [&str; 3]> {
        let mut labels = self.0.split(SEPARATOR).skip(1);
        std::iter::from_fn(move || Some([labels.next()?, labels.next()?, labels.next()?]))
    }
}

/// A label without the separator, which only a span from elsewhere could have.
fn label(text: &str) -> Cow<'_, str> {
    if text.contains(SEPARATOR) {
        text.replace(SEPARATOR, "").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn span(attributes: &[(&str, &str)]) -> SpanRecord {
        let attributes = attributes.iter();
        SpanRecord {
            trace: [1; 16],
            span: [2; 8],
            parent: None,
            service: String::new(),
            version: String::new(),
            name: String::new(),
            start: Timestamp::UNIX_EPOCH,
            end: Timestamp::UNIX_EPOCH,
            attributes: attributes
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
            error: None,
            links: Vec::new(),
        }
    }

    fn of_pod(number: usize) -> SpanRecord {
        let (uid, name) = (format!("u{number}"), format!("web-{number}"));
        span(&[
            (POD_UID, &uid),
            (POD_NAMESPACE, "default"),
            (POD_NAME, &name),
        ])
    }

    #[test]
    fn pods_are_found_before_and_after_the_root_is_known() {
        let mut labels = TraceLabels::default();
        labels.add(&of_pod(1));
        assert_eq!((labels.root(), labels.pod("u1")), ("", Some("u1")));
        labels.add(&span(&[(ROOT_ATTRIBUTE, "pod.start")]));
        labels.add(&span(&[(ROOT_ATTRIBUTE, "pod.delete")]));
        labels.add(&of_pod(2));
        labels.add(&of_pod(1));
        assert_eq!(labels.root(), "pod.start");
        for (query, uid) in [
            ("u1", Some("u1")),
            ("web-2", Some("u2")),
            ("default/web-2", Some("u2")),
            ("other/web-2", None),
            ("default", None),
            ("pod.start", None),
            ("", None),
        ] {
            assert_eq!(labels.pod(query), uid, "{query}");
        }
        assert_eq!(labels.pods().count(), 2);
    }

    #[test]
    fn there_is_a_most_of_pods_and_no_separator_in_a_label() {
        let mut labels = TraceLabels::default();
        (0..20).for_each(|number| labels.add(&of_pod(number)));
        assert_eq!(labels.pods().count(), MAX_PODS);
        let mut labels = TraceLabels::default();
        labels.add(&span(&[(POD_UID, "a\0b"), (POD_NAME, "\0")]));
        assert_eq!(labels.pods().collect::<Vec<_>>(), [["ab", "", ""]]);
    }
}
