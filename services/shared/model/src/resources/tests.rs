use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn spec(value: Value) -> PodSpec {
    serde_json::from_value(value).unwrap()
}

fn requesting(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {"requests": {"cpu": cpu, "memory": memory}}})
}

#[test]
fn shares_quota_and_weight() {
    for (millis, shares) in [
        (0, 2),
        (-1, 2),
        (1, 2),
        (2, 2),
        (100, 102),
        (1000, 1024),
        (256_000, 262_144),
        (i64::MAX, 262_144),
    ] {
        assert_eq!(cpu_shares(millis), shares, "{millis}");
    }
    for (millis, quota) in [
        (0, 0),
        (1, 1000),
        (10, 1000),
        (20, 2000),
        (1000, 100_000),
        (2500, 250_000),
    ] {
        assert_eq!(cpu_quota(millis, CPU_PERIOD_US), quota, "{millis}");
    }
    for (shares, weight) in [
        (0, 1),
        (2, 1),
        (102, 4),
        (1024, 39),
        (4096, 157),
        (262_144, 10_000),
        (u64::MAX, 10_000),
    ] {
        assert_eq!(cpu_weight(shares), weight, "{shares}");
    }
}

#[test]
fn pod_requests_are_the_maximum_of_running_and_initializing() {
    let spec = spec(json!({
        "containers": [requesting("a", "100m", "1Gi"), requesting("b", "100m", "1Gi")],
        "initContainers": [
            requesting("first", "150m", "3Gi"),
            {"name": "side", "restartPolicy": "Always", "resources": {"requests": {"cpu": "50m"}}},
            requesting("second", "220m", "1Gi"),
        ],
        "overhead": {"cpu": "10m"},
    }));
    let sum = pod_requests(&spec);
    assert_eq!(sum["cpu"].millis(), 280); // max(100+100+50, 150, 50+220) + 10
    assert_eq!(sum["memory"].value(), 3 << 30);
}

#[test]
fn overhead_is_added_to_existing_limits() {
    let spec = spec(
        json!({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}],
        "overhead": {"cpu": "100m", "memory": "1Gi"}}),
    );
    let limits = pod_limits(&spec);
    assert_eq!(limits["cpu"].millis(), 1100);
    assert!(!limits.contains_key("memory"));
}

#[test]
fn container_settings() {
    let pod = spec(json!({"containers": [{"name": "a", "resources": {
        "limits": {"cpu": "500m", "memory": "64Mi", "hugepages-2Mi": "4Mi"}}}]}));
    let got = container_resources(&pod, &pod.containers[0], 1 << 30, true, CPU_PERIOD_US);
    assert_eq!(
        (got.cpu_shares, got.cpu_quota, got.memory_limit),
        (512, 50_000, 64 << 20)
    );
    assert_eq!(
        got.huge_pages,
        BTreeMap::from([("2Mi".to_owned(), 4 << 20)])
    );
    let free = container_resources(&pod, &pod.containers[0], 1 << 30, false, CPU_PERIOD_US);
    assert_eq!((free.cpu_quota, free.cpu_period), (0, 0));
    let bare = spec(json!({"containers": [{"name": "a"}]}));
    let got = container_resources(&bare, &bare.containers[0], 1 << 30, true, CPU_PERIOD_US);
    assert_eq!(
        (
            got.cpu_shares,
            got.cpu_quota,
            got.memory_limit,
            got.oom_score_adj
        ),
        (2, 0, 0, 1000)
    );
}

#[test]
fn pod_level_limits_apply_to_containers_without_limits() {
    let pod = spec(json!({
    "resources": {"requests": {"cpu": "200m"},
        "limits": {"cpu": "500m", "memory": "64Mi", "hugepages-2Mi": "8Mi"}},
    "containers": [
        {"name": "bare"},
        {"name": "zero", "resources": {"limits": {"cpu": "0", "memory": "0"}}},
        {"name": "own", "resources": {"requests": {"cpu": "100m"},
            "limits": {"cpu": "250m", "memory": "32Mi", "hugepages-2Mi": "2Mi"}}},
    ]}));
    let got = |index: usize| {
        let got = container_resources(&pod, &pod.containers[index], 1 << 30, true, CPU_PERIOD_US);
        (
            got.cpu_shares,
            got.cpu_quota,
            got.memory_limit,
            got.huge_pages["2Mi"],
        )
    };
    assert_eq!(got(0), (512, 50_000, 64 << 20, 8 << 20));
    assert_eq!(got(1), (512, 50_000, 64 << 20, 8 << 20));
    assert_eq!(got(2), (102, 25_000, 32 << 20, 2 << 20));
}

#[test]
fn pod_settings() {
    let limited = json!({"name": "a", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}});
    let pod = pod_resources(&spec(json!({"containers": [limited]})), true, CPU_PERIOD_US);
    assert_eq!(
        (pod.cpu_shares, pod.cpu_quota, pod.memory_limit),
        (1024, Some(200_000), Some(1 << 30))
    );
    let open = pod_resources(
        &spec(json!({"containers": [limited, {"name": "b"}]})),
        true,
        CPU_PERIOD_US,
    );
    assert_eq!((open.cpu_quota, open.memory_limit), (None, None));
    let none = pod_resources(
        &spec(json!({"containers": [{"name": "b"}]})),
        true,
        CPU_PERIOD_US,
    );
    assert_eq!(
        (none.cpu_shares, none.cpu_quota, none.memory_limit),
        (2, None, None)
    );
}

#[test]
fn oom_scores_by_class_and_request() {
    const NODE: u64 = 8_000_000_000;
    let score = |value: Value, index: usize| {
        let spec = spec(value);
        oom_score_adj(&spec, &spec.containers[index], NODE)
    };
    assert_eq!(score(json!({"containers": [{"name": "a"}]}), 0), 1000);
    let same =
        json!({"requests": {"cpu": "1", "memory": "1"}, "limits": {"cpu": "1", "memory": "1"}});
    assert_eq!(
        score(json!({"containers": [{"name": "a", "resources": same}]}), 0),
        -997
    );
    assert_eq!(
        score(
            json!({"priority": 2_000_001_000, "priorityClassName": "system-node-critical", "containers": [{"name": "a"}]}),
            0
        ),
        -997
    );
    assert_eq!(
        score(
            json!({"containers": [requesting("a", "1", "4000000000")]}),
            0
        ),
        500
    );
    assert_eq!(
        score(
            json!({"containers": [requesting("a", "1", "8000000000")]}),
            0
        ),
        3
    );
    assert_eq!(
        score(json!({"containers": [requesting("a", "1", "1")]}), 0),
        999
    );
}

#[test]
fn sidecars_have_at_most_the_oom_score_of_regular_containers() {
    const NODE: u64 = 1000;
    let spec = spec(
        json!({"containers": [requesting("a", "1", "400"), requesting("b", "1", "200")],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}]}),
    );
    let sidecar = &spec.init_containers.as_ref().unwrap()[0];
    assert_eq!(oom_score_adj(&spec, sidecar, NODE), 800);
    assert_eq!(oom_score_adj(&spec, &spec.containers[1], NODE), 800);
    assert_eq!(oom_score_adj(&spec, &spec.containers[0], NODE), 600);
}

proptest! {
    #[test]
    fn weight_increases_with_shares(shares in 2_u64..262_144) {
        prop_assert!(cpu_weight(shares) <= cpu_weight(shares + 1));
        prop_assert!((1..=10_000).contains(&cpu_weight(shares)));
    }
    #[test]
    fn oom_scores_of_burstable_pods_are_between_the_others(memory in 1_i64..1 << 50, capacity in 0_u64..1 << 50) {
        let spec = spec(json!({"containers": [requesting("a", "1", &memory.to_string())]}));
        let score = oom_score_adj(&spec, &spec.containers[0], capacity);
        prop_assert!((3..=999).contains(&score));
    }
}

#[test]
fn containers_without_requests_have_the_weight_of_the_pods_limit() {
    for (resources, shares) in [(json!({}), 30), (json!({"requests": {"cpu": "1"}}), 1024)] {
        let pod = spec(json!({"resources": {"limits": {"cpu": "30m"}},
            "containers": [{"name": "a", "resources": resources}]}));
        let got = container_resources(&pod, &pod.containers[0], 1 << 30, true, CPU_PERIOD_US);
        assert_eq!(got.cpu_shares, shares);
    }
}

#[test]
fn resources_of_the_status_are_as_the_api_server_returns_them() {
    let resources = json!({ "requests": { "cpu": "0.5", "memory": "100M" },
        "limits": { "cpu": "1500m", "memory": "0.5Gi" } });
    let spec = spec(json!({ "containers": [{ "name": "a", "resources": resources }] }));
    let (reported, allocated) = pod_status_resources(&spec);
    let reported = serde_json::to_value(&reported).unwrap();
    let requests = json!({ "cpu": "500m", "memory": "100M" });
    let limits = json!({ "cpu": "1500m", "memory": "512Mi" });
    assert_eq!(reported, json!({ "requests": requests, "limits": limits }));
    assert_eq!(serde_json::to_value(&allocated).unwrap(), requests);
}
