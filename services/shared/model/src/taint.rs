//! Whether a pod tolerates what keeps pods away from a node.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether one of the tolerations is for this taint. An empty key with `Exists` is for all keys, an
/// empty effect for all effects.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let said = |part: &Option<String>| part.clone().unwrap_or_default();
        let (effect, key, value) = (
            said(&toleration.effect),
            said(&toleration.key),
            said(&toleration.value),
        );
        let effect = effect.is_empty() || effect == taint.effect;
        let key = key.is_empty() || key == taint.key;
        let has = taint.value.clone().unwrap_or_default();
        let value = match said(&toleration.operator).as_str() {
            "Exists" => true,
            "" | "Equal" => value == has,
            _ => false,
        };
        effect && key && value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upstreams_cases() {
        let taint = Taint {
            key: "a".into(),
            value: Some("1".into()),
            effect: "NoExecute".into(),
            ..Taint::default()
        };
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        for (key, operator, value, effect, tolerated) in [
            ("a", "Equal", "1", "NoExecute", true),
            ("a", "", "1", "", true),
            ("a", "Exists", "", "", true),
            ("", "Exists", "", "NoExecute", true),
            ("a", "Equal", "2", "NoExecute", false),
            ("b", "Exists", "", "", false),
            ("a", "Equal", "1", "NoSchedule", false),
            ("a", "Near", "1", "", false),
        ] {
            let toleration = Toleration {
                key: some(key),
                operator: some(operator),
                value: some(value),
                effect: some(effect),
                ..Toleration::default()
            };
            assert_eq!(
                is_tolerated(&taint, &[toleration]),
                tolerated,
                "{key} {operator}"
            );
        }
        assert!(!is_tolerated(&taint, &[]));
    }
}
