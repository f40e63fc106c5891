//! The dashboard in `compose/`, asked of a Prometheus that has scraped a node.

use std::fs;

use polylet_e2e::ok;
use polylet_harness::cluster::Prometheus;
use polylet_harness::{Node, machine};
use serde_json::Value;

/// Panels that are empty on a healthy node.
const EMPTY: [&str; 1] = ["Failed calls of the runtime"];

/// Each query is accepted and has results.
pub(crate) async fn has_results(prometheus: &Prometheus) {
    let path = machine::workspace().join("compose/dashboard.json");
    let dashboard: Value = ok(serde_json::from_str(&ok(fs::read_to_string(path))));
    let mut empty = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$instance", ".+");
            let query = query.replace("$__rate_interval", "5m");
            let results = ok(prometheus.query(&query).await);
            let is_number = |one: &Value| one["value"][1] != "NaN";
            if !results.iter().any(is_number) && !EMPTY.contains(&title) {
                empty.push(format!("{title}: {query}"));
            }
        }
    }
    assert!(empty.is_empty(), "without results: {empty:#?}");
}

/// The traces of exemplars that Prometheus stores are those that the command line lists.
pub(crate) async fn exemplars_lead_to_traces(prometheus: &Prometheus, node: &Node) {
    let expression = "polylet_pod_start_step_seconds_bucket";
    let series = ok(prometheus.query_exemplars(expression).await);
    let exemplars = series
        .iter()
        .flat_map(|series| series["exemplars"].as_array().into_iter().flatten());
    let ids: Vec<_> = exemplars
        .map(|exemplar| exemplar["labels"]["trace_id"].as_str().unwrap())
        .collect();
    assert!(!ids.is_empty(), "{series:?}");
    let listed = ok(node.cli(&["trace", "list", "--output", "json"]).await);
    let listed = String::from_utf8(listed.stdout).unwrap();
    for id in ids {
        assert!(listed.contains(id), "no {id} in {listed}");
    }
}
