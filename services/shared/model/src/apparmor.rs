//! AppArmor profiles of pods, in fields and in the older annotations.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container};

use crate::pod::Manifest;

/// The prefix of the annotation's key; the container's name follows.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Whether the pod requests any profile but `Unconfined`.
pub fn is_requested(manifest: &Manifest) -> bool {
    let confines = |profile: &AppArmorProfile| profile.type_ != "Unconfined";
    let of_pod = manifest
        .spec()
        .security_context
        .as_ref()
        .and_then(|context| context.app_armor_profile.as_ref());
    let annotations = manifest.metadata().annotations.iter().flatten();
    of_pod.is_some_and(confines)
        || manifest
            .all_containers()
            .any(|(_, container)| field_profile(container).is_some_and(confines))
        || annotations
            .filter(|(key, _)| key.starts_with(ANNOTATION))
            .any(|(_, value)| value != "unconfined")
}

/// The profile of a container: its own field, else (for a static pod) its annotation, else the pod's
/// field.
pub fn profile(manifest: &Manifest, container: &Container) -> Option<AppArmorProfile> {
    if let Some(own) = field_profile(container) {
        return Some(own.clone());
    }
    // The API server turns annotations into fields, but does not see static pods.
    let annotated = manifest
        .is_static()
        .then(|| manifest.annotation(&format!("{ANNOTATION}{}", container.name)))
        .flatten()
        .and_then(parse_annotation);
    annotated.or_else(|| {
        let context = manifest.spec().security_context.as_ref()?;
        context.app_armor_profile.clone()
    })
}

/// A profile in the form of the annotation, which the CRI uses as well: `localhost/name`.
pub fn annotation_value(profile: &AppArmorProfile) -> String {
    match profile.type_.as_str() {
        "RuntimeDefault" => "runtime/default".to_owned(),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            format!("localhost/{name}")
        }
        _ => "unconfined".to_owned(),
    }
}

/// The error of the first invalid profile, in the kubelet's words.
pub fn invalid_reason(manifest: &Manifest) -> Option<String> {
    manifest.all_containers().find_map(|(_, container)| {
        let profile = profile(manifest, container)?;
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        let unnamed = profile.type_ == "Localhost" && name.trim().is_empty();
        unnamed.then(|| format!("invalid empty AppArmor profile name: {name:?}"))
    })
}

fn field_profile(container: &Container) -> Option<&AppArmorProfile> {
    container
        .security_context
        .as_ref()?
        .app_armor_profile
        .as_ref()
}

fn parse_annotation(value: &str) -> Option<AppArmorProfile> {
    let profile = |type_: &str, name: Option<&str>| AppArmorProfile {
        localhost_profile: name.map(str::to_owned),
        type_: type_.to_owned(),
    };
    match value {
        "runtime/default" => Some(profile("RuntimeDefault", None)),
        "unconfined" => Some(profile("Unconfined", None)),
        _ => value
            .strip_prefix("localhost/")
            .map(|name| profile("Localhost", Some(name))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(annotation: Option<&str>, pod: Value, own: Value) -> Manifest {
        let mut annotations = json!({"kubernetes.io/config.source": "file"});
        if let Some(value) = annotation {
            annotations[format!("{ANNOTATION}c")] = json!(value);
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations},
            "spec": {"securityContext": {"appArmorProfile": pod},
                "containers": [{"name": "c", "securityContext": {"appArmorProfile": own}}]}});
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn precedence_of_fields_and_annotations() {
        let localhost = json!({"type": "Localhost", "localhostProfile": "mine"});
        let default = json!({"type": "RuntimeDefault"});
        let found = |annotation, pod: &Value, own: &Value| {
            let manifest = manifest(annotation, pod.clone(), own.clone());
            profile(&manifest, &manifest.containers()[0]).map(|p| annotation_value(&p))
        };
        let nothing = Value::Null;
        assert_eq!(found(None, &nothing, &nothing), None);
        assert_eq!(found(None, &default, &nothing).unwrap(), "runtime/default");
        assert_eq!(
            found(Some("unconfined"), &default, &nothing).unwrap(),
            "unconfined"
        );
        assert_eq!(
            found(Some("unconfined"), &default, &localhost).unwrap(),
            "localhost/mine"
        );
        assert_eq!(
            found(Some("localhost/x"), &nothing, &nothing).unwrap(),
            "localhost/x"
        );
    }

    #[test]
    fn unconfined_is_no_request() {
        let unconfined = json!({"type": "Unconfined"});
        let default = json!({"type": "RuntimeDefault"});
        for (annotation, pod, own, requested) in [
            (None, Value::Null, Value::Null, false),
            (None, unconfined.clone(), Value::Null, false),
            (None, default.clone(), Value::Null, true),
            (None, Value::Null, default, true),
            (Some("unconfined"), Value::Null, unconfined, false),
            (Some("runtime/default"), Value::Null, Value::Null, true),
        ] {
            assert_eq!(is_requested(&manifest(annotation, pod, own)), requested);
        }
    }

    #[test]
    fn localhost_profiles_need_a_name() {
        let blank = json!({"type": "Localhost", "localhostProfile": " "});
        assert!(invalid_reason(&manifest(None, Value::Null, blank)).is_some());
        assert!(
            invalid_reason(&manifest(Some("runtime/default"), Value::Null, Value::Null)).is_none()
        );
    }
}
