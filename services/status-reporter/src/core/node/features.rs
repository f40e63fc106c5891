//! Declared features of the node, which the scheduler and the API server act on.

use std::collections::BTreeMap;

/// Supported features, each with a gate of the same name, in the order of the API. Of upstream's features,
/// `ExtendWebSocketsToKubelet` is missing, as the node API does not stream, and
/// `UserNamespacesHostNetworkSupport`, which is off by default.
const SUPPORTED: [&str; 3] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// The declared features under these gates, which are on unless disabled.
pub(crate) fn declared(gates: &BTreeMap<String, bool>) -> Vec<String> {
    let on = |gate: &str| gates.get(gate) != Some(&false);
    let declared = SUPPORTED
        .iter()
        .filter(|gate| on("NodeDeclaredFeatures") && on(gate));
    declared.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disabled_gate_removes_its_feature() {
        let gates = |off: &[&str]| off.iter().map(|gate| ((*gate).to_owned(), false)).collect();
        assert_eq!(declared(&gates(&[])), SUPPORTED);
        assert_eq!(
            declared(&gates(&[SUPPORTED[0], SUPPORTED[2]])),
            [SUPPORTED[1]]
        );
        assert!(declared(&gates(&["NodeDeclaredFeatures"])).is_empty());
    }
}
