//! `/configz`: the configuration in effect.

use serde_json::{Value, json};

/// What a secret is replaced by, as in upstream's logs.
const MASKED: &str = "<masked>";

/// The response: the configuration as a `v1beta1` object. Headers of the manifest URL may be credentials,
/// and are masked.
pub(crate) fn response(mut configuration: Value) -> Value {
    if let Some(fields) = configuration.as_object_mut() {
        fields.retain(|_, value| !is_unset(value));
        if let Some(headers) = fields
            .get_mut("staticPodURLHeader")
            .and_then(Value::as_object_mut)
        {
            headers
                .values_mut()
                .for_each(|values| *values = json!([MASKED]));
        }
        fields.insert("kind".to_owned(), json!("KubeletConfiguration"));
        fields.insert(
            "apiVersion".to_owned(),
            json!("kubelet.config.k8s.io/v1beta1"),
        );
    }
    json!({ "kubeletconfig": configuration })
}

/// Fields that upstream's encoding omits.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_is_an_object_without_secrets() {
        let configuration = json!({
            "syncFrequency": "1m0s", "enableServer": false, "port": 10250, "tracing": null,
            "tlsCertFile": "", "featureGates": {},
            "staticPodURLHeader": {"Authorization": ["Bearer abc"]},
        });
        assert_eq!(
            response(configuration),
            json!({"kubeletconfig": {
                "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "syncFrequency": "1m0s", "enableServer": false, "port": 10250,
                "staticPodURLHeader": {"Authorization": [MASKED]},
            }})
        );
    }
}
