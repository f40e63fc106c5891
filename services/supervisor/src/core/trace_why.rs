//! Why a trace took longer than others, as text and JSON.

use polylet_trace::{
    AttributeDifference, SlowSteps, TimeAmongOthers, TraceSummary, VersionDifference,
};
use serde_json::{Value, json};

use super::text;
use super::trace_list::{micros, summary_as_json};
use super::trace_top::quantiles_json;

/// Fewer others say little about what is usual.
const FEW: usize = 10;
/// Further attributes are counted only.
const MAX_ATTRIBUTES: usize = 20;

/// The steps of a trace that took longer than in 95 % of the others of its shape.
pub fn slow_steps_text(trace: &TraceSummary, slow: &SlowSteps) -> String {
    let TraceSummary {
        namespace,
        name,
        root,
        shape,
        ..
    } = trace;
    let mut text = format!(
        "{root} of {namespace}/{name}: {}, {}; {shape}\n",
        text::duration(trace.duration),
        trace.outcome_label(),
    );
    let TimeAmongOthers { others, .. } = slow.total;
    match slow.others {
        0 => text.push_str("no other trace of this shape to compare with\n"),
        count => text.push_str(&format!(
            "{count} others of this shape: p50 {}, p95 {}, max {}\n",
            text::duration(others.p50),
            text::duration(others.p95),
            text::duration(others.max),
        )),
    }
    if (1..FEW).contains(&slow.others) {
        text.push_str("with so few others, what is usual is uncertain\n");
    }
    if slow.others > 0 && slow.steps.is_empty() {
        text.push_str("\nno step took longer than in 95 % of the others\n");
    }
    if !slow.steps.is_empty() {
        let titles = ["STEP", "OWNER", "TIME", "OVER P50", "P50", "P95", "MAX"];
        let mut rows = vec![titles.map(str::to_owned).to_vec()];
        rows.extend(slow.steps.iter().map(|(step, time)| {
            let owner = step.owner().map_or("-", polylet_trace::StepOwner::label);
            vec![
                step.to_string(),
                owner.to_owned(),
                text::duration(time.time),
                format!("+{}", text::duration(time.excess())),
                text::duration(time.others.p50),
                text::duration(time.others.p95),
                text::duration(time.others.max),
            ]
        }));
        text.push_str(&format!("\n{}", text::table(&rows)));
    }
    for one in &slow.versions {
        let VersionDifference {
            service,
            version,
            others,
        } = one;
        text.push_str(&format!(
            "\n{service} was {version} here, {others} in most others\n"
        ));
    }
    text
}

/// The attributes in which a trace differs from most others.
pub fn attributes_text(differences: &[AttributeDifference]) -> String {
    if differences.is_empty() {
        return String::new();
    }
    let titles = ["STEP", "ATTRIBUTE", "HERE", "OTHERS", "USUALLY", "OTHERS"];
    let mut rows = vec![titles.map(str::to_owned).to_vec()];
    let value = |value: &Option<String>| value.as_deref().unwrap_or("(none)").to_owned();
    let count = |count: usize, one: &AttributeDifference| format!("{count} of {}", one.others);
    rows.extend(differences.iter().take(MAX_ATTRIBUTES).map(|one| {
        vec![
            one.step.to_string(),
            one.attribute.clone(),
            value(&one.value),
            count(one.others_with_value, one),
            value(&one.usual),
            count(one.others_with_usual, one),
        ]
    }));
    let mut text = format!("\n{}", text::table(&rows));
    if differences.len() > MAX_ATTRIBUTES {
        text.push_str(&format!(
            "and {} more\n",
            differences.len() - MAX_ATTRIBUTES
        ));
    }
    text
}

/// The same as JSON.
pub fn attributes_json(differences: &[AttributeDifference]) -> Value {
    let difference = |one: &AttributeDifference| {
        json!({
            "step": one.step.to_string(),
            "attribute": one.attribute,
            "value": one.value,
            "othersWithValue": one.others_with_value,
            "usual": one.usual,
            "othersWithUsual": one.others_with_usual,
            "others": one.others,
        })
    };
    differences.iter().map(difference).collect()
}

/// The same as JSON; times in microseconds.
pub fn slow_steps_json(trace: &TraceSummary, slow: &SlowSteps) -> Value {
    let among = |time: &TimeAmongOthers| {
        json!({
            "us": micros(time.time),
            "overP50Us": micros(time.excess()),
            "othersUs": quantiles_json(&time.others),
            "isSlow": time.is_slow(),
        })
    };
    let step = |(step, time): &(polylet_trace::StepName, TimeAmongOthers)| {
        let mut value = among(time);
        if let Some(fields) = value.as_object_mut() {
            fields.insert("step".to_owned(), step.to_string().into());
            let owner = step.owner().map(polylet_trace::StepOwner::label);
            fields.insert("owner".to_owned(), owner.into());
        }
        value
    };
    let version = |one: &VersionDifference| json!({ "service": one.service, "version": one.version, "others": one.others });
    json!({
        "trace": summary_as_json(trace),
        "others": slow.others,
        "total": among(&slow.total),
        "slowSteps": slow.steps.iter().map(step).collect::<Vec<_>>(),
        "versions": slow.versions.iter().map(version).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use polylet_trace::slow_steps;

    use super::*;
    use crate::core::trace_fixture::start;

    fn slow() -> (TraceSummary, SlowSteps) {
        let of = |id: u8, sandbox| {
            start(
                id,
                &[("s", "cri.RunPodSandbox", sandbox), ("s", "sync.start", 20)],
            )
        };
        let others: Vec<_> = (10..30).map(|id| of(id, 100)).collect();
        let mut slow = of(1, 400);
        slow.versions = [("pleg".to_owned(), "0.2.0".to_owned())].into();
        let found = slow_steps(&slow, &others);
        (slow, found)
    }

    #[test]
    fn slow_steps_are_a_table() {
        let (trace, found) = slow();
        let expected = "\
pod.start of default/web-1: 420.0ms, ready; 1 container
20 others of this shape: p50 120.0ms, p95 120.0ms, max 120.0ms

STEP                  OWNER     TIME      OVER P50   P50       P95       MAX
s/cri.RunPodSandbox   runtime   400.0ms   +300.0ms   100.0ms   100.0ms   100.0ms

pleg was 0.2.0 here, 0.1.0 in most others
";
        assert_eq!(slow_steps_text(&trace, &found), expected);
        let json = slow_steps_json(&trace, &found);
        assert_eq!(json["slowSteps"].as_array().unwrap().len(), 1);
        assert_eq!(json["slowSteps"][0]["overP50Us"], 300_000);
        assert_eq!(json["slowSteps"][0]["owner"], "runtime");
        assert_eq!(json["versions"][0]["others"], "0.1.0");
        assert_eq!(json["trace"]["name"], "web-1");
    }

    #[test]
    fn differing_attributes_are_a_table() {
        let difference =
            |attribute: &str, value: Option<&str>, usual: Option<&str>| AttributeDifference {
                step: polylet_trace::StepName {
                    service: "s".to_owned(),
                    operation: "sync.pull".to_owned(),
                },
                attribute: attribute.to_owned(),
                value: value.map(str::to_owned),
                others_with_value: 1,
                usual: usual.map(str::to_owned),
                others_with_usual: 39,
                others: 40,
            };
        let both = [
            difference("result", Some("pulled"), Some("present")),
            difference("error", Some("no"), None),
        ];
        let expected = "
STEP          ATTRIBUTE   HERE     OTHERS    USUALLY   OTHERS
s/sync.pull   result      pulled   1 of 40   present   39 of 40
s/sync.pull   error       no       1 of 40   (none)    39 of 40
";
        assert_eq!(attributes_text(&both), expected);
        assert_eq!(attributes_text(&[]), "");
        let many = vec![difference("x", None, Some("y")); 22];
        assert!(attributes_text(&many).ends_with("and 2 more\n"));
        assert_eq!(attributes_json(&both)[1]["usual"], Value::Null);
    }

    #[test]
    fn few_or_no_others_are_said() {
        let trace = start(1, &[("s", "sync.start", 20)]);
        let text = |others: &[TraceSummary]| slow_steps_text(&trace, &slow_steps(&trace, others));
        assert!(text(&[]).ends_with("no other trace of this shape to compare with\n"));
        let few = text(&[start(2, &[("s", "sync.start", 20)])]);
        assert!(few.contains("with so few others"), "{few}");
        assert!(
            few.ends_with("no step took longer than in 95 % of the others\n"),
            "{few}"
        );
    }
}
