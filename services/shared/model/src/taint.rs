//! Taints and tolerations.

use k8s_openapi::api::core::v1::{Taint, Toleration};

/// Whether any toleration matches the taint. An empty key with `Exists` matches all keys, an empty
/// effect all effects.
pub fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let text = |field: &Option<String>| field.clone().unwrap_or_default();
        let (effect, key, value) = (
            text(&toleration.effect),
            text(&toleration.key),
            text(&toleration.value),
        );
        let effect = effect.is_empty() || effect == taint.effect;
        let key = key.is_empty() || key == taint.key;
        let taint_value = taint.value.clone().unwrap_or_default();
        let value = match text(&toleration.operator).as_str() {
            "Exists" => true,
            "" | "Equal" => value == taint_value,
            _ => false,
        };
        effect && key && value
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tolerations_as_upstream() {
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
