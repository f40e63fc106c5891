//! Features that nodes declare in their status, and pods require; upstream's `nodedeclaredfeatures`.
//! They are named like the feature gates that enable them, and listed in alphabetical order.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec};

/// The node API serves the newer protocols of streams over WebSockets.
const WEBSOCKETS: &str = "ExtendWebSocketsToKubelet";
/// The resources of pods are resized in place.
const POD_LEVEL_RESIZE: &str = "InPlacePodLevelResourcesVerticalScaling";
/// Init containers are resized in place.
const INIT_CONTAINER_RESIZE: &str = "InPlacePodVerticalScalingInitContainers";
/// A container's exit restarts all containers of the pod.
const RESTART_ALL: &str = "RestartAllContainersOnContainerExits";
/// Pods in the node's network namespace have user namespaces.
const USERNS_HOST_NETWORK: &str = "UserNamespacesHostNetworkSupport";

/// Features that this agent supports. Of upstream's, `UserNamespacesHostNetworkSupport` is missing, which
/// is off by default.
pub const SUPPORTED: [&str; 4] = [
    WEBSOCKETS,
    POD_LEVEL_RESIZE,
    INIT_CONTAINER_RESIZE,
    RESTART_ALL,
];

/// The declared features under these gates, which are on unless disabled. `None` if nodes declare
/// none.
pub fn declared(gates: &BTreeMap<String, bool>) -> Option<Vec<String>> {
    let on = |gate: &str| gates.get(gate) != Some(&false);
    let declared = SUPPORTED.iter().filter(|gate| on(gate));
    on("NodeDeclaredFeatures").then(|| declared.map(|name| (*name).to_owned()).collect())
}

/// The features that a pod requires to start.
pub fn required_to_start(spec: &PodSpec) -> Vec<&'static str> {
    let userns_host_network = spec.host_network == Some(true) && spec.host_users == Some(false);
    let init_containers = spec.init_containers.iter().flatten();
    let restarts_all = |container: &Container| {
        let mut rules = container.restart_policy_rules.iter().flatten();
        rules.any(|rule| rule.action == "RestartAllContainers")
    };
    let restart_all = spec
        .containers
        .iter()
        .chain(init_containers)
        .any(restarts_all);
    only([
        (restart_all, RESTART_ALL),
        (userns_host_network, USERNS_HOST_NETWORK),
    ])
}

/// The features that a change of a pod's spec requires.
pub fn required_to_update(before: &PodSpec, after: &PodSpec) -> Vec<&'static str> {
    let pod_level = before.resources != after.resources;
    let is_sidecar = |container: &Container| container.restart_policy.as_deref() == Some("Always");
    let containers = before.init_containers.iter().flatten();
    let after = after.init_containers.iter().flatten();
    let init_container = containers
        .zip(after)
        .any(|(before, after)| !is_sidecar(before) && before.resources != after.resources);
    only([
        (pod_level, POD_LEVEL_RESIZE),
        (init_container, INIT_CONTAINER_RESIZE),
    ])
}

/// The required features that are not declared, as upstream lists them; `None` if there are none.
pub fn missing(required: &[&str], declared: &[String]) -> Option<String> {
    let is_missing = |name: &&&str| !declared.iter().any(|declared| declared == **name);
    let missing: Vec<&str> = required.iter().filter(is_missing).copied().collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

fn only<const N: usize>(features: [(bool, &'static str); N]) -> Vec<&'static str> {
    let required = features.into_iter().filter(|(required, _)| *required);
    required.map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: Value) -> PodSpec {
        let mut spec = json!({"containers": [{"name": "a"}]});
        for (name, value) in fields.as_object().into_iter().flatten() {
            spec[name] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn disabled_gate_removes_its_feature() {
        let gates = |off: &[&str]| off.iter().map(|gate| ((*gate).to_owned(), false)).collect();
        assert_eq!(declared(&gates(&[])).unwrap(), SUPPORTED);
        let two_off = declared(&gates(&[SUPPORTED[0], SUPPORTED[2]]));
        assert_eq!(two_off.unwrap(), [SUPPORTED[1], SUPPORTED[3]]);
        assert_eq!(declared(&gates(&["NodeDeclaredFeatures"])), None);
    }

    #[test]
    fn features_that_pods_require() {
        let rule = json!([{"name": "a", "restartPolicy": "Never", "restartPolicyRules": [
            {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]}]);
        for (fields, required) in [
            (json!({}), &[][..]),
            (json!({"containers": rule}), &[RESTART_ALL][..]),
            (json!({"initContainers": rule}), &[RESTART_ALL]),
            (
                json!({"hostNetwork": true, "hostUsers": false}),
                &[USERNS_HOST_NETWORK],
            ),
            (json!({"hostNetwork": true, "hostUsers": true}), &[]),
            (json!({"hostUsers": false}), &[]),
        ] {
            assert_eq!(
                required_to_start(&spec(fields.clone())),
                required,
                "{fields}"
            );
        }
    }

    #[test]
    fn features_that_updates_require() {
        let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
        let init = |policy: Value, amount: &str| json!({"initContainers": [{"name": "i", "restartPolicy": policy, "resources": cpu(amount)}]});
        for (before, after, required) in [
            (json!({}), json!({}), &[][..]),
            (
                json!({"resources": cpu("1")}),
                json!({"resources": cpu("2")}),
                &[POD_LEVEL_RESIZE],
            ),
            (
                init(Value::Null, "1"),
                init(Value::Null, "2"),
                &[INIT_CONTAINER_RESIZE],
            ),
            (init(Value::Null, "1"), init(Value::Null, "1"), &[]),
            (init(json!("Always"), "1"), init(json!("Always"), "2"), &[]),
        ] {
            let found = required_to_update(&spec(before.clone()), &spec(after.clone()));
            assert_eq!(found, required, "{before} {after}");
        }
    }

    #[test]
    fn missing_features_are_listed() {
        let declared = [INIT_CONTAINER_RESIZE.to_owned()];
        assert_eq!(missing(&[], &declared), None);
        assert_eq!(missing(&[INIT_CONTAINER_RESIZE], &declared), None);
        let both = missing(&[RESTART_ALL, USERNS_HOST_NETWORK], &declared);
        let expected = "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport";
        assert_eq!(both.unwrap(), expected);
    }
}
