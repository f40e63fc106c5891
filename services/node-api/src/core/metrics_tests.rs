use polylet_metrics::Exemplar;
use serde_json::json;

use super::*;

#[test]
fn families_of_one_name_are_added_up() {
    let exemplar = Exemplar {
        bucket: 1,
        value: 0.75,
        trace_id: "0af7".to_owned(),
        measured_at: 1700.5,
    };
    let histogram = |bound, count| {
        CountedValue::Histogram(HistogramValue {
            buckets: vec![(bound, count)],
            sum: 1.0,
            count: 2,
            exemplars: vec![exemplar.clone()],
        })
    };
    let family = |name: &str, kind, value| CountedFamily {
        name: name.to_owned(),
        help: "Help.".to_owned(),
        kind,
        series: vec![(Labels::default().with("a", "b"), value)],
    };
    let number = CountedValue::Number;
    let counted = vec![
        family("calls_total", FamilyKind::Counter, number(1.0)),
        family("seconds", FamilyKind::Histogram, histogram(0.5, 1)),
        family("calls_total", FamilyKind::Counter, number(2.0)),
        family("seconds", FamilyKind::Histogram, histogram(0.5, 2)),
        // Those of another version.
        family("seconds", FamilyKind::Histogram, histogram(0.25, 2)),
        family("calls_total", FamilyKind::Gauge, number(5.0)),
    ];
    let facts = ScrapedNode::default();
    let text = node(
        ExpositionFormat::default(),
        &facts,
        &NodeCounts::default(),
        counted,
        &json!({}),
    );
    for line in [
        "# TYPE calls_total counter",
        "calls_total{a=\"b\"} 3",
        "seconds_bucket{a=\"b\",le=\"0.5\"} 3",
        "seconds_bucket{a=\"b\",le=\"+Inf\"} 4",
        "seconds_sum{a=\"b\"} 2",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in {text}"
        );
    }
    assert_eq!(text.matches("# TYPE calls_total").count(), 1);
    assert!(!text.contains("0af7"), "{text}");
}

#[test]
fn openmetrics_has_the_exemplars_of_the_services() {
    let exemplar = |bucket, trace_id: &str| Exemplar {
        bucket,
        value: 0.75,
        trace_id: trace_id.to_owned(),
        measured_at: 1700.5,
    };
    let family = |exemplars| CountedFamily {
        name: "seconds".to_owned(),
        help: "Help.".to_owned(),
        kind: FamilyKind::Histogram,
        series: vec![(
            Labels::default(),
            CountedValue::Histogram(HistogramValue {
                buckets: vec![(0.5, 1)],
                sum: 1.0,
                count: 2,
                exemplars,
            }),
        )],
    };
    let counted = vec![
        family(vec![exemplar(1, "a")]),
        family(vec![exemplar(0, "b"), exemplar(1, "c")]),
    ];
    let format = ExpositionFormat::OpenMetrics;
    let facts = ScrapedNode::default();
    let text = node(format, &facts, &NodeCounts::default(), counted, &json!({}));
    for line in [
        "seconds_bucket{le=\"0.5\"} 2 # {trace_id=\"b\"} 0.75 1700.5",
        "seconds_bucket{le=\"+Inf\"} 4 # {trace_id=\"a\"} 0.75 1700.5",
        "# EOF",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in {text}"
        );
    }
}

#[test]
fn claim_volumes_are_counted_once() {
    let files = json!({"name": "v", "pvcRef": {"name": "files", "namespace": "ns"},
        "capacityBytes": 10, "usedBytes": 3, "availableBytes": 7});
    let own = json!({"name": "tmp", "capacityBytes": 1});
    let pod = json!({"volume": [files, own]});
    let render = |summary: &Value| {
        let facts = ScrapedNode::default();
        node(
            ExpositionFormat::default(),
            &facts,
            &NodeCounts::default(),
            Vec::new(),
            summary,
        )
    };
    let text = render(&json!({"pods": [pod, pod, {}]}));
    let line =
        "kubelet_volume_stats_used_bytes{namespace=\"ns\",persistentvolumeclaim=\"files\"} 3\n";
    assert_eq!(text.matches(line).count(), 1, "{text}");
    assert_eq!(text.matches("# TYPE kubelet_volume_stats").count(), 3);
    assert!(!render(&json!({})).contains("kubelet_volume_stats"));
}

#[test]
fn node_and_logs_have_upstream_names() {
    let counts = NodeCounts {
        running_pods: 2,
        containers: BTreeMap::from([("running", 4), ("exited", 1)]),
    };
    let facts = ScrapedNode {
        name: "a\"b",
        version: "1",
        ..ScrapedNode::default()
    };
    let summary = json!({"pods": [{
        "podRef": {"namespace": "n", "name": "p", "uid": "u"},
        "containers": [{"name": "c", "logs": {"usedBytes": 5}}],
    }]});
    let text = node(
        ExpositionFormat::default(),
        &facts,
        &counts,
        Vec::new(),
        &summary,
    );
    for line in [
        "kubelet_running_pods 2",
        "kubelet_running_containers{container_state=\"running\"} 4",
        "kubelet_node_name{node=\"a\\\"b\"} 1",
        "kubelet_container_log_filesystem_used_bytes{container=\"c\",namespace=\"n\",pod=\"p\",uid=\"u\"} 5",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "no {line} in {text}"
        );
    }
}
