//! What a node declares that it can do, for schedulers and the API server to go by.

use std::collections::BTreeMap;

/// Features that this node has, in the API's order, each with its gate of the same name. What upstream
/// declares besides is not there: `ExtendWebSocketsToKubelet` needs a node API that streams, and
/// `UserNamespacesHostNetworkSupport` is off by default.
const OURS: [&str; 3] = [
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// What is declared under these gates; all are on unless they are switched off.
pub(crate) fn declared(gates: &BTreeMap<String, bool>) -> Vec<String> {
    let on = |gate: &str| gates.get(gate) != Some(&false);
    let ours = OURS
        .iter()
        .filter(|gate| on("NodeDeclaredFeatures") && on(gate));
    ours.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_takes_its_feature_away() {
        let gates = |off: &[&str]| off.iter().map(|gate| ((*gate).to_owned(), false)).collect();
        assert_eq!(declared(&gates(&[])), OURS);
        assert_eq!(declared(&gates(&[OURS[0], OURS[2]])), [OURS[1]]);
        assert!(declared(&gates(&["NodeDeclaredFeatures"])).is_empty());
    }
}
