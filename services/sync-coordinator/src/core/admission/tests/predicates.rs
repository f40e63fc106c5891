//! Resources, placement and features.

use super::*;

#[test]
fn insufficient_resources_are_rejected() {
    let short = |name: &str, requested: i64, used: i64, capacity: i64| {
        (
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        )
    };
    let fits = <(String, String)>::default();
    for (requests, expected) in [
        (json!({}), fits.clone()),
        (json!({"cpu": "500m", "memory": "400Mi"}), fits.clone()),
        (json!({"cpu": "501m"}), short("cpu", 501, 1500, 2000)),
        (
            json!({"memory": "401Mi"}),
            short("memory", 401 * MI, 600 * MI, 1000 * MI),
        ),
        // The first failure is reported.
        (
            json!({"cpu": "1", "memory": "1Gi"}),
            short("cpu", 1000, 1500, 2000),
        ),
        (
            json!({"ephemeral-storage": "1001"}),
            short("ephemeral-storage", 1001, 0, 1000),
        ),
        (
            json!({"hugepages-2Mi": "2Mi"}),
            short("hugepages-2Mi", 2 * MI, 0, 0),
        ),
        (
            json!({"hugepages-1Gi": "1Gi"}),
            short("hugepages-1Gi", 1 << 30, 0, 0),
        ),
        // Resources that the node does not know are not counted.
        (json!({"example.com/thing": "3"}), fits.clone()),
    ] {
        assert_eq!(
            rejection(&env(requesting(requests.clone()))),
            expected,
            "{requests}"
        );
    }
    let mut full = env(requesting(json!({})));
    for name in ["b", "c"] {
        let more = allocated_pod(pod_request(QosClass::BestEffort, &[]));
        full.node.resources.allocated.set(&name.into(), more);
    }
    assert_eq!(rejection(&full), short("pods", 1, 3, 3));
}

#[test]
fn a_larger_init_container_counts() {
    let mut spec = requesting(json!({"cpu": "100m"}));
    spec["initContainers"] =
        json!([{"name": "i", "image": "i:1", "resources": {"requests": {"cpu": "600m"}}}]);
    assert_eq!(rejection(&env(spec.clone())).0, "OutOfcpu");
    spec["initContainers"][0]["resources"]["requests"]["cpu"] = json!("500m");
    assert_eq!(rejection(&env(spec)).0, "");
}

#[test]
fn node_selector_node_name_and_host_ports_must_match() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"disk": "hdd"});
    assert_eq!(
        rejection(&env(spec)),
        (
            "NodeAffinity".into(),
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
                .into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["nodeName"] = json!("n2");
    assert_eq!(rejection(&env(spec)).0, "NodeName");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 8080}]);
    assert_eq!(
        rejection(&env(spec.clone())),
        (
            "NodePorts".into(),
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                .into()
        )
    );
    spec["containers"][0]["ports"][0]["protocol"] = json!("UDP");
    assert_eq!(rejection(&env(spec)).0, "");
}

#[test]
fn unsupported_features_are_rejected() {
    let os = with(env(simple("Always", &["a"])), |pod| {
        pod.metadata.labels = Some([("kubernetes.io/os".into(), "windows".into())].into());
    });
    assert_eq!(rejection(&os).0, "PodOSSelectorNodeLabelDoesNotMatch");
    let mut spec = simple("Always", &["a"]);
    spec["os"] = json!({"name": "windows"});
    assert_eq!(
        rejection(&env(spec)),
        (
            "PodOSNotSupported".into(),
            "Failed to admit pod as the OS field doesn't match node OS".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["securityContext"] = json!({"supplementalGroupsPolicy": "Strict"});
    let mut strict = env(spec);
    assert_eq!(
        rejection(&strict),
        (
            "SupplementalGroupsPolicyNotSupported".into(),
            "SupplementalGroupsPolicy=Strict is not supported in this node".into()
        )
    );
    strict.node.resources.supports_strict_supplemental_groups = true;
    assert_eq!(rejection(&strict).0, "");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["securityContext"] =
        json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    let mut confined = env(spec);
    assert_eq!(rejection(&confined).0, "");
    confined.node.resources.apparmor_error = Some("AppArmor is not enabled on the host".into());
    assert_eq!(
        rejection(&confined),
        (
            "AppArmor".into(),
            "Cannot enforce AppArmor: AppArmor is not enabled on the host".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["resources"] = json!({"requests": {"cpu": "1m"}});
    let mut pod_level = env(spec);
    assert_eq!(rejection(&pod_level).0, "");
    pod_level.node.resources.pod_level_resources_disabled = true;
    assert_eq!(rejection(&pod_level).0, "PodLevelResourcesNotSupported");
}

#[test]
fn pods_that_require_a_missing_feature_are_rejected() {
    let mut restarts_all = simple("Always", &["a"]);
    restarts_all["containers"][0]["restartPolicy"] = json!("Never");
    restarts_all["containers"][0]["restartPolicyRules"] = json!([{
        "action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let mut claims = simple("Always", &["a"]);
    claims["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "gpu"}]);
    let restart_all = "RestartAllContainersOnContainerExits";
    for (spec, declared, missing) in [
        (simple("Always", &["a"]), Some(vec![]), None),
        (restarts_all.clone(), None, None),
        (
            restarts_all.clone(),
            Some(vec![restart_all.to_owned()]),
            None,
        ),
        (restarts_all, Some(vec![]), Some(restart_all)),
        (
            claims.clone(),
            Some(vec![]),
            Some("DynamicResourceAllocation"),
        ),
        (claims, None, Some("DynamicResourceAllocation")),
    ] {
        let mut env = env(spec);
        env.node.resources.declared_features = declared;
        let expected = missing.map_or_else(Default::default, |missing| {
            let message = format!("Pod requires node features that are not available: {missing}");
            ("PodFeatureUnsupported".to_owned(), message)
        });
        assert_eq!(rejection(&env), expected);
    }
}

/// Node pressure, then sysctls, then the operating system, then resources.
#[test]
fn handlers_run_in_upstream_order() {
    let mut spec = requesting(json!({"cpu": "3"}));
    spec["os"] = json!({"name": "windows"});
    spec["securityContext"] = json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}],
        "appArmorProfile": {"type": "RuntimeDefault"}});
    let mut env = env(spec);
    env.spec = Arc::new(PodSpecView::from_manifest(&env.spec.manifest.clone(), &[]));
    env.node.pressure = NodePressure {
        disk: true,
        ..NodePressure::default()
    };
    env.node.resources.apparmor_error = Some("no".into());
    assert_eq!(
        rejection(&env),
        (
            "Evicted".into(),
            "The node had condition: [DiskPressure]. ".into()
        )
    );
    env.node.pressure = NodePressure::default();
    assert_eq!(rejection(&env).0, "SysctlForbidden");
    let relax = |env: &mut TestEnv, key: &str| {
        let mut spec = serde_json::to_value(env.spec.manifest.spec()).unwrap();
        match key {
            "sysctls" => spec["securityContext"]["sysctls"] = Value::Null,
            "requests" => spec["containers"][0]["resources"] = Value::Null,
            key => spec[key] = Value::Null,
        }
        env.spec = Arc::new(PodSpecView::from_manifest(&manifest(spec), &[]));
    };
    relax(&mut env, "sysctls");
    assert_eq!(rejection(&env).0, "PodOSNotSupported");
    relax(&mut env, "os");
    assert_eq!(rejection(&env).0, "OutOfcpu");
    relax(&mut env, "requests");
    assert_eq!(rejection(&env).0, "AppArmor");
}
