//! Node selectors and required node affinity, by a node's labels and name.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PodSpec,
};

/// Whether the node matches the pod's `nodeSelector` and its required node affinity. Invalid
/// requirements do not match.
pub fn matches(spec: &PodSpec, node_name: &str, labels: &BTreeMap<String, String>) -> bool {
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
    selected && affinity.is_none_or(|selector| matches_selector(selector, node_name, labels))
}

/// Whether the node matches any term of a selector. It matches a term if it meets all of the term's
/// requirements; an empty term matches nothing.
pub fn matches_selector(
    selector: &NodeSelector,
    node_name: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let mut terms = selector.node_selector_terms.iter();
    terms.any(|term| matches_term(term, node_name, labels))
}

fn matches_term(
    term: &NodeSelectorTerm,
    node_name: &str,
    labels: &BTreeMap<String, String>,
) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let by_label = |it: &NodeSelectorRequirement| {
        matches_requirement(it, labels.get(&it.key).map(String::as_str))
    };
    let by_field = |it: &NodeSelectorRequirement| {
        it.key == "metadata.name" && matches_requirement(it, Some(node_name))
    };
    expressions.iter().all(by_label) && fields.iter().all(by_field)
}

fn matches_requirement(requirement: &NodeSelectorRequirement, actual: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || actual.is_some_and(|actual| values.iter().any(|value| value == actual));
    let numbers = || {
        let bound: i64 = values.first()?.parse().ok()?;
        Some((actual?.parse::<i64>().ok()?, bound))
    };
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => actual.is_some(),
        "DoesNotExist" => actual.is_none(),
        "Gt" => numbers().is_some_and(|(actual, bound)| actual > bound),
        "Lt" => numbers().is_some_and(|(actual, bound)| actual < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(spec: Value) -> bool {
        let mut full = json!({"containers": []});
        for (key, value) in spec.as_object().unwrap() {
            full[key] = value.clone();
        }
        let labels = [("disk", "ssd"), ("size", "5")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        matches(&serde_json::from_value(full).unwrap(), "n1", &labels.into())
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
    fn all_operators() {
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
    fn terms_are_alternatives_and_requirements_are_combined() {
        let name = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(check(affinity(json!([name("n1")]))));
        assert!(!check(affinity(json!([name("n2")]))));
        assert!(check(affinity(json!([name("n2"), name("n1")]))));
        assert!(!check(affinity(json!([{}]))));
        assert!(!check(affinity(json!([]))));
    }
}
