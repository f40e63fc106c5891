//! Attributes by which a trace differs from others.

use std::collections::{BTreeMap, BTreeSet};

use crate::span::SpanRecord;
use crate::summary::StepName;
use crate::text::printable;
use crate::trace::Trace;

/// With fewer others nothing is usual.
const MIN_OTHERS: usize = 10;
/// A step, or a value, is usual if this share of the others has it; identifiers have no usual value.
const USUAL: f64 = 0.5;
/// A value is unusual if at most this share of the others has it.
const UNUSUAL: f64 = 0.05;
/// What stands for the error of a span.
const ERROR: &str = "error";
/// Longer values are cut off, in characters.
const MAX_VALUE: usize = 200;

/// An attribute that has another value than in most other traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributeDifference {
    /// The step whose spans have it.
    pub step: StepName,
    /// The name; `error` for the error of a span.
    pub attribute: String,
    /// The value in this trace; `None` if it is not there.
    pub value: Option<String>,
    /// How many of the others have the same.
    pub others_with_value: usize,
    /// The value in most others; `None` if it is not there in most of them.
    pub usual: Option<String>,
    /// How many of the others have that.
    pub others_with_usual: usize,
    /// How many others have the step.
    pub others: usize,
}

/// The attributes in which a trace differs from others of its shape, the rarest first; itself does not count.
///
/// An attribute counts if the others that have its step mostly agree: what differs in each trace, such as an
/// identifier, tells nothing.
pub fn attribute_differences(trace: &Trace, others: &[Trace]) -> Vec<AttributeDifference> {
    let others: Vec<&Trace> = others.iter().filter(|other| other.id != trace.id).collect();
    if others.len() < MIN_OTHERS {
        return Vec::new();
    }
    let mut usage: BTreeMap<SpanOperation<'_>, StepUsage<'_>> = BTreeMap::new();
    for other in &others {
        for (step, values) in values_by_step(other) {
            let usage = usage.entry(step).or_default();
            usage.traces += 1;
            for (attribute, value) in values {
                let counts = usage.values.entry(attribute).or_default();
                *counts.entry(value).or_default() += 1;
            }
        }
    }
    let mut differences = Vec::new();
    for (step, values) in values_by_step(trace) {
        let usage = usage.get(&step);
        let Some(usage) = usage.filter(|usage| is_share(usage.traces, others.len(), USUAL)) else {
            continue;
        };
        differences.extend(differences_of_step(step, &values, usage));
    }
    differences.sort_by(|a, b| {
        let rarity =
            |one: &AttributeDifference| (one.others_with_value, usize::MAX - one.others_with_usual);
        let name = |one: &AttributeDifference| (one.step.clone(), one.attribute.clone());
        rarity(a)
            .cmp(&rarity(b))
            .then_with(|| name(a).cmp(&name(b)))
    });
    differences
}

/// Service and operation.
type SpanOperation<'a> = (&'a str, &'a str);

/// In how many traces a step occurs, and with which values of its attributes.
#[derive(Default)]
struct StepUsage<'a> {
    traces: usize,
    values: BTreeMap<&'a str, BTreeMap<&'a str, usize>>,
}

/// The attributes of each step with their values, each once.
fn values_by_step(trace: &Trace) -> BTreeMap<SpanOperation<'_>, BTreeSet<(&str, &str)>> {
    let mut steps: BTreeMap<SpanOperation<'_>, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for span in trace.spans.iter().filter(|span| !span.is_derived_root()) {
        let step = steps.entry((&span.service, &span.name)).or_default();
        step.extend(values(span));
    }
    steps
}

fn values(span: &SpanRecord) -> impl Iterator<Item = (&str, &str)> {
    let attributes = span.attributes.iter();
    let attributes = attributes.map(|(key, value)| (key.as_str(), value.as_str()));
    attributes.chain(span.error.iter().map(|error| (ERROR, error.as_str())))
}

fn differences_of_step(
    step: SpanOperation<'_>,
    values: &BTreeSet<(&str, &str)>,
    usage: &StepUsage<'_>,
) -> Vec<AttributeDifference> {
    let none = BTreeMap::new();
    let difference =
        |attribute: &str, value: Option<&str>, with_value, usual: Option<&str>, with_usual| {
            AttributeDifference {
                step: StepName {
                    service: step.0.to_owned(),
                    operation: step.1.to_owned(),
                },
                attribute: printable(attribute, MAX_VALUE),
                value: value.map(|value| printable(value, MAX_VALUE)),
                others_with_value: with_value,
                usual: usual.map(|usual| printable(usual, MAX_VALUE)),
                others_with_usual: with_usual,
                others: usage.traces,
            }
        };
    let mut differences = Vec::new();
    for (attribute, value) in values {
        let counts = usage.values.get(attribute).unwrap_or(&none);
        let with_value = counts.get(value).copied().unwrap_or_default();
        if !is_at_most(with_value, usage.traces, UNUSUAL) {
            continue;
        }
        let most = counts.iter().max_by_key(|(_, count)| **count);
        let usual = most.filter(|(_, count)| is_share(**count, usage.traces, USUAL));
        // Others may have several values each.
        let with_any: usize = counts.values().sum();
        let without = usage.traces.saturating_sub(with_any);
        if let Some((usual, count)) = usual {
            differences.push(difference(
                attribute,
                Some(value),
                with_value,
                Some(usual),
                *count,
            ));
        } else if is_share(without, usage.traces, 1.0 - UNUSUAL) {
            differences.push(difference(
                attribute,
                Some(value),
                with_value,
                None,
                without,
            ));
        }
    }
    let present: BTreeSet<&str> = values.iter().map(|(attribute, _)| *attribute).collect();
    for (attribute, counts) in &usage.values {
        let most = counts.iter().max_by_key(|(_, count)| **count);
        let usual = most.filter(|(_, count)| is_share(**count, usage.traces, 1.0 - UNUSUAL));
        if let Some((usual, count)) = usual.filter(|_| !present.contains(attribute)) {
            let without = usage.traces.saturating_sub(counts.values().sum());
            differences.push(difference(attribute, None, without, Some(usual), *count));
        }
    }
    differences
}

fn is_share(count: usize, of: usize, share: f64) -> bool {
    count as f64 >= of as f64 * share
}

fn is_at_most(count: usize, of: usize, share: f64) -> bool {
    count as f64 <= of as f64 * share
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn trace(id: u8, attributes: &[(&str, &str)], error: Option<&str>) -> Trace {
        let own = format!("{id}");
        let pairs = attributes.iter().copied();
        let pairs = pairs.chain([("container.id", own.as_str())]);
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let span = SpanRecord {
            trace: [id; 16],
            span: [1; 8],
            parent: Some([9; 8]),
            service: "s".to_owned(),
            version: String::new(),
            name: "sync.pull".to_owned(),
            start: Timestamp::UNIX_EPOCH,
            end: Timestamp::UNIX_EPOCH,
            attributes: pairs.collect(),
            error: error.map(str::to_owned),
            links: Vec::new(),
        };
        let alone = SpanRecord {
            span: [2; 8],
            name: format!("only.{id}"),
            ..span.clone()
        };
        Trace {
            id: [id; 16],
            spans: vec![span, alone],
        }
    }

    /// Attribute, value, and the usual one.
    fn found(trace: &Trace, others: &[Trace]) -> Vec<(String, String, String)> {
        let differences = attribute_differences(trace, others);
        let shown = differences.into_iter().map(|one| {
            let value = one.value.unwrap_or_else(|| "-".to_owned());
            (
                one.attribute,
                value,
                one.usual.unwrap_or_else(|| "-".to_owned()),
            )
        });
        shown.collect()
    }

    fn row(cells: [&str; 3]) -> (String, String, String) {
        let [attribute, value, usual] = cells.map(str::to_owned);
        (attribute, value, usual)
    }

    #[test]
    fn values_that_most_others_do_not_have_are_found() {
        let usual = [("result", "present"), ("mode", "ro")];
        let mut others: Vec<Trace> = (10..49).map(|id| trace(id, &usual, None)).collect();
        // One in forty is still unusual, one in ten is not.
        others.push(trace(49, &[("result", "pulled"), ("mode", "ro")], None));
        let this = trace(1, &[("result", "pulled"), ("attempt", "3")], Some("no"));
        others.push(this.clone());
        let expected = [
            ["attempt", "3", "-"],
            ["error", "no", "-"],
            ["mode", "-", "ro"],
            ["result", "pulled", "present"],
        ];
        assert_eq!(found(&this, &others), expected.map(row));
        let counts = &attribute_differences(&this, &others)[3];
        assert_eq!(
            (
                counts.others_with_value,
                counts.others_with_usual,
                counts.others
            ),
            (1, 39, 40)
        );
        for id in 50..53 {
            others.push(trace(id, &[("result", "pulled"), ("mode", "ro")], None));
        }
        let results = found(&this, &others)
            .into_iter()
            .filter(|row| row.0 == "result");
        assert_eq!(results.count(), 0);
        // What is usual differs in nothing.
        assert_eq!(found(&others[0], &others), []);
    }

    #[test]
    fn without_agreement_or_with_few_others_nothing_is_unusual() {
        let sizes = |id: u8| trace(id, &[("size", &format!("{id}"))], None);
        let others: Vec<Trace> = (10..40).map(sizes).collect();
        assert_eq!(found(&sizes(1), &others), []);
        let usual: Vec<Trace> = (10..19).map(|id| trace(id, &[("a", "b")], None)).collect();
        assert_eq!(found(&trace(1, &[("a", "c")], None), &usual), []);
    }
}
