//! What a pod asks for, and what the node has and can do.

use super::*;

#[test]
fn resources() {
    let short = |name: &str, requested: i64, used: i64, capacity: i64| {
        (
            format!("OutOf{name}"),
            format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
            ),
        )
    };
    let fits = <(String, String)>::default();
    for (requests, wanted) in [
        (json!({}), fits.clone()),
        (json!({"cpu": "500m", "memory": "400Mi"}), fits.clone()),
        (json!({"cpu": "501m"}), short("cpu", 501, 1500, 2000)),
        (
            json!({"memory": "401Mi"}),
            short("memory", 401 * MI, 600 * MI, 1000 * MI),
        ),
        // The first that is short is told.
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
        // What the node does not know of is not its own to count.
        (json!({"example.com/thing": "3"}), fits.clone()),
    ] {
        assert_eq!(told(&world(asking(requests.clone()))), wanted, "{requests}");
    }
    let mut full = world(asking(json!({})));
    for name in ["b", "c"] {
        let more = holder(demand(QosClass::BestEffort, &[]));
        full.node.room.ledger.set(name, more);
    }
    assert_eq!(told(&full), short("pods", 1, 3, 3));
}

#[test]
fn an_init_container_counts_where_it_asks_for_more() {
    let mut spec = asking(json!({"cpu": "100m"}));
    spec["initContainers"] =
        json!([{"name": "i", "image": "i:1", "resources": {"requests": {"cpu": "600m"}}}]);
    assert_eq!(told(&world(spec.clone())).0, "OutOfcpu");
    spec["initContainers"][0]["resources"]["requests"]["cpu"] = json!("500m");
    assert_eq!(told(&world(spec)).0, "");
}

#[test]
fn where_it_may_be() {
    let mut spec = simple("Always", &["a"]);
    spec["nodeSelector"] = json!({"disk": "hdd"});
    assert_eq!(
        told(&world(spec)),
        (
            "NodeAffinity".into(),
            "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
                .into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["nodeName"] = json!("n2");
    assert_eq!(told(&world(spec)).0, "NodeName");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["ports"] = json!([{"containerPort": 1, "hostPort": 8080}]);
    assert_eq!(
        told(&world(spec.clone())),
        (
            "NodePorts".into(),
            "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
                .into()
        )
    );
    spec["containers"][0]["ports"][0]["protocol"] = json!("UDP");
    assert_eq!(told(&world(spec)).0, "");
}

#[test]
fn what_the_node_cannot_do() {
    let os = with(world(simple("Always", &["a"])), |pod| {
        pod.metadata.labels = Some([("kubernetes.io/os".into(), "windows".into())].into());
    });
    assert_eq!(told(&os).0, "PodOSSelectorNodeLabelDoesNotMatch");
    let mut spec = simple("Always", &["a"]);
    spec["os"] = json!({"name": "windows"});
    assert_eq!(
        told(&world(spec)),
        (
            "PodOSNotSupported".into(),
            "Failed to admit pod as the OS field doesn't match node OS".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["securityContext"] = json!({"supplementalGroupsPolicy": "Strict"});
    let mut strict = world(spec);
    assert_eq!(
        told(&strict),
        (
            "SupplementalGroupsPolicyNotSupported".into(),
            "SupplementalGroupsPolicy=Strict is not supported in this node".into()
        )
    );
    strict.node.room.strict_groups = true;
    assert_eq!(told(&strict).0, "");
    let mut spec = simple("Always", &["a"]);
    spec["containers"][0]["securityContext"] =
        json!({"appArmorProfile": {"type": "RuntimeDefault"}});
    let mut confined = world(spec);
    assert_eq!(told(&confined).0, "");
    confined.node.room.no_apparmor = Some("AppArmor is not enabled on the host".into());
    assert_eq!(
        told(&confined),
        (
            "AppArmor".into(),
            "Cannot enforce AppArmor: AppArmor is not enabled on the host".into()
        )
    );
    let mut spec = simple("Always", &["a"]);
    spec["resources"] = json!({"requests": {"cpu": "1m"}});
    let mut whole = world(spec);
    assert_eq!(told(&whole).0, "");
    whole.node.room.no_pod_level_resources = true;
    assert_eq!(told(&whole).0, "PodLevelResourcesNotSupported");
}

/// Pressure is asked first, then sysctls, then what the node is, then room.
#[test]
fn the_order_is_upstreams() {
    let mut spec = asking(json!({"cpu": "3"}));
    spec["os"] = json!({"name": "windows"});
    spec["securityContext"] = json!({"sysctls": [{"name": "vm.swappiness", "value": "1"}],
        "appArmorProfile": {"type": "RuntimeDefault"}});
    let mut world = world(spec);
    world.wanted = Arc::new(Wanted::of(&world.wanted.manifest.clone(), &[]));
    world.node.pressure = Pressure {
        disk: true,
        ..Pressure::default()
    };
    world.node.room.no_apparmor = Some("no".into());
    assert_eq!(
        told(&world),
        (
            "Evicted".into(),
            "The node had condition: [DiskPressure]. ".into()
        )
    );
    world.node.pressure = Pressure::default();
    assert_eq!(told(&world).0, "SysctlForbidden");
    let relax = |world: &mut World, key: &str| {
        let mut spec = serde_json::to_value(world.wanted.manifest.spec()).unwrap();
        match key {
            "sysctls" => spec["securityContext"]["sysctls"] = Value::Null,
            "requests" => spec["containers"][0]["resources"] = Value::Null,
            key => spec[key] = Value::Null,
        }
        world.wanted = Arc::new(Wanted::of(&manifest(spec), &[]));
    };
    relax(&mut world, "sysctls");
    assert_eq!(told(&world).0, "PodOSNotSupported");
    relax(&mut world, "os");
    assert_eq!(told(&world).0, "OutOfcpu");
    relax(&mut world, "requests");
    assert_eq!(told(&world).0, "AppArmor");
}
