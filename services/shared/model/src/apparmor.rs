//! AppArmor profiles that a pod names, in fields and in the older annotations.

use k8s_openapi::api::core::v1::{AppArmorProfile, Container};

use crate::pod::Manifest;

/// Followed by a container's name.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Whether the pod asks for any profile at all.
pub fn is_wanted(manifest: &Manifest) -> bool {
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
            .any(|(_, container)| of_fields(container).is_some_and(confines))
        || annotations
            .filter(|(key, _)| key.starts_with(ANNOTATION))
            .any(|(_, value)| value != "unconfined")
}

/// The profile of one container: its own field; of a static pod the annotation; the pod's field.
pub fn of(manifest: &Manifest, container: &Container) -> Option<AppArmorProfile> {
    if let Some(own) = of_fields(container) {
        return Some(own.clone());
    }
    // Nobody turns a static pod's annotations into fields.
    let annotated = manifest
        .is_static()
        .then(|| manifest.annotation(&format!("{ANNOTATION}{}", container.name)))
        .flatten()
        .and_then(of_annotation);
    annotated.or_else(|| {
        let context = manifest.spec().security_context.as_ref()?;
        context.app_armor_profile.clone()
    })
}

/// A profile in the annotation's words, which the runtime interface has as well.
pub fn in_one_word(profile: &AppArmorProfile) -> String {
    match profile.type_.as_str() {
        "RuntimeDefault" => "runtime/default".to_owned(),
        "Localhost" => {
            let name = profile.localhost_profile.as_deref().unwrap_or_default();
            format!("localhost/{name}")
        }
        _ => "unconfined".to_owned(),
    }
}

/// Why no profile of the pod can be used, though this node could confine it.
pub fn unusable(manifest: &Manifest) -> Option<String> {
    manifest.all_containers().find_map(|(_, container)| {
        let profile = of(manifest, container)?;
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        let nameless = profile.type_ == "Localhost" && name.trim().is_empty();
        nameless.then(|| format!("invalid empty AppArmor profile name: {name:?}"))
    })
}

fn of_fields(container: &Container) -> Option<&AppArmorProfile> {
    container
        .security_context
        .as_ref()?
        .app_armor_profile
        .as_ref()
}

fn of_annotation(word: &str) -> Option<AppArmorProfile> {
    let profile = |type_: &str, name: Option<&str>| AppArmorProfile {
        localhost_profile: name.map(str::to_owned),
        type_: type_.to_owned(),
    };
    match word {
        "runtime/default" => Some(profile("RuntimeDefault", None)),
        "unconfined" => Some(profile("Unconfined", None)),
        _ => word
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
        if let Some(word) = annotation {
            annotations[format!("{ANNOTATION}c")] = json!(word);
        }
        let pod = json!({"metadata": {"name": "p", "namespace": "n", "uid": "u", "annotations": annotations},
            "spec": {"securityContext": {"appArmorProfile": pod},
                "containers": [{"name": "c", "securityContext": {"appArmorProfile": own}}]}});
        Manifest::from_json(pod.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn fields_before_annotations_before_the_pod() {
        let localhost = json!({"type": "Localhost", "localhostProfile": "mine"});
        let default = json!({"type": "RuntimeDefault"});
        let found = |annotation, pod: &Value, own: &Value| {
            let manifest = manifest(annotation, pod.clone(), own.clone());
            of(&manifest, &manifest.containers()[0]).map(|p| in_one_word(&p))
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
    fn unconfined_asks_for_nothing() {
        let unconfined = json!({"type": "Unconfined"});
        let default = json!({"type": "RuntimeDefault"});
        for (annotation, pod, own, wanted) in [
            (None, Value::Null, Value::Null, false),
            (None, unconfined.clone(), Value::Null, false),
            (None, default.clone(), Value::Null, true),
            (None, Value::Null, default, true),
            (Some("unconfined"), Value::Null, unconfined, false),
            (Some("runtime/default"), Value::Null, Value::Null, true),
        ] {
            assert_eq!(is_wanted(&manifest(annotation, pod, own)), wanted);
        }
    }

    #[test]
    fn a_profile_needs_a_name() {
        let blank = json!({"type": "Localhost", "localhostProfile": " "});
        assert!(unusable(&manifest(None, Value::Null, blank)).is_some());
        assert!(unusable(&manifest(Some("runtime/default"), Value::Null, Value::Null)).is_none());
    }
}
