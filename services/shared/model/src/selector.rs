//! Which nodes a pod may be on, by their labels and their name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

/// Whether the node is one that the pod's `nodeSelector` and its required node
/// affinity choose. A requirement that cannot be read is not met.
pub fn chooses(spec: &PodSpec, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
    let selected = spec
        .node_selector
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|node| {
            node.required_during_scheduling_ignored_during_execution
                .as_ref()
        });
    selected && affinity.is_none_or(|wanted| selects(wanted, node_name, labels))
}

/// Whether one of a selector's terms holds for the node. One is enough, and all of a term must
/// hold; an empty one chooses nothing.
pub fn selects(wanted: &NodeSelector, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
    let mut terms = wanted.node_selector_terms.iter();
    terms.any(|term| holds(term, node_name, labels))
}

fn holds(term: &NodeSelectorTerm, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label =
        |one: &NodeSelectorRequirement| met(one, labels.get(&one.key).map(String::as_str));
    let by_field =
        |one: &NodeSelectorRequirement| one.key == "metadata.name" && met(one, Some(node_name));
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn met(wanted: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = wanted.values.as_deref().unwrap_or_default();
    let named = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let numbers = || {
        let wanted: i64 = values.first()?.parse().ok()?;
        Some((found?.parse::<i64>().ok()?, wanted))
    };
    match wanted.operator.as_str() {
        "In" => named(),
        "NotIn" => !named(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => numbers().is_some_and(|(found, wanted)| found > wanted),
        "Lt" => numbers().is_some_and(|(found, wanted)| found < wanted),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value) -> bool {
        let mut whole = json!({"containers": []});
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let labels = [("disk", "ssd"), ("size", "5")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        chooses(
            &serde_json::from_value(whole).unwrap(),
            "n1",
            &labels.into(),
        )
    }

    fn affinity(terms: Value) -> Value {
        json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn selectors() {
        assert!(check(json!({})));
        assert!(check(json!({"nodeSelector": {"disk": "ssd"}})));
        assert!(!check(json!({"nodeSelector": {"disk": "hdd"}})));
        assert!(!check(
            json!({"nodeSelector": {"disk": "ssd", "zone": "a"}})
        ));
    }

    #[test]
    fn every_operator() {
        let one = |operator: &str, key: &str, values: &[&str]| {
            check(affinity(json!([{"matchExpressions": [
                {"key": key, "operator": operator, "values": values}]}])))
        };
        assert!(one("In", "disk", &["hdd", "ssd"]));
        assert!(!one("In", "zone", &["a"]));
        assert!(one("NotIn", "zone", &["a"]));
        assert!(!one("NotIn", "disk", &["ssd"]));
        assert!(one("Exists", "disk", &[]) && !one("Exists", "zone", &[]));
        assert!(one("DoesNotExist", "zone", &[]) && !one("DoesNotExist", "disk", &[]));
        assert!(one("Gt", "size", &["4"]) && !one("Gt", "size", &["5"]));
        assert!(one("Lt", "size", &["6"]) && !one("Lt", "disk", &["6"]));
        assert!(!one("Like", "disk", &["ssd"]));
    }

    #[test]
    fn terms_are_or_and_their_parts_are_and() {
        let name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(check(affinity(json!([name("n1")]))));
        assert!(!check(affinity(json!([name("n2")]))));
        assert!(check(affinity(json!([name("n2"), name("n1")]))));
        assert!(!check(affinity(json!([{}]))));
        assert!(!check(affinity(json!([]))));
    }
}
