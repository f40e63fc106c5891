use serde_json::json;

use super::*;

fn read(value: &Value) -> Result<Manifest, ManifestError> {
    Manifest::from_json(value.to_string().as_bytes())
}

fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "annotations": {
            "kubernetes.io/config.source": "file", "kubernetes.io/config.seen": "2026-01-02T03:04:05.678Z"}},
        "spec": {
            "restartPolicy": "OnFailure",
            "fieldOfTomorrow": true,
            "initContainers": [{"name": "once", "image": "a"}, {"name": "beside", "image": "a", "restartPolicy": "Always"}],
            "containers": [{"name": "app", "image": "b"}, {"name": "never", "image": "b", "restartPolicy": "Never"}],
            "ephemeralContainers": [{"name": "look", "image": "c", "targetContainerName": "app"}]
        }
    })
}

#[test]
fn words_about_a_pod() {
    let manifest = read(&pod()).unwrap();
    assert_eq!(manifest.full_name(), "web_shop");
    assert_eq!(manifest.uid().as_str(), "u-1");
    let kinds: Vec<_> = manifest
        .all_containers()
        .map(|(kind, c)| (kind, c.name.as_str()))
        .collect();
    assert_eq!(
        kinds,
        [
            (ContainerKind::Init, "once"),
            (ContainerKind::Sidecar, "beside"),
            (ContainerKind::Regular, "app"),
            (ContainerKind::Regular, "never"),
            (ContainerKind::Ephemeral, "look"),
        ]
    );
    let policy = |name| manifest.restart_policy_of(manifest.container(name).unwrap().1);
    assert_eq!(policy("beside"), RestartPolicy::Always);
    assert_eq!(policy("app"), RestartPolicy::OnFailure);
    assert_eq!(policy("never"), RestartPolicy::Never);
    assert_eq!(manifest.ephemeral_target("look"), Some("app"));
    assert_eq!(manifest.termination_grace(), Duration::from_secs(30));
    assert!(
        manifest.is_static()
            && manifest.is_critical()
            && !manifest.is_mirror()
            && !manifest.host_network()
    );
    assert_eq!(
        manifest.seen_at(),
        Some("2026-01-02T03:04:05.678Z".parse().unwrap())
    );
    assert!(String::from_utf8_lossy(manifest.raw()).contains("fieldOfTomorrow"));
}

#[test]
fn what_every_part_needs_must_be_there() {
    for field in ["name", "namespace", "uid"] {
        let mut value = pod();
        value["metadata"][field] = json!("");
        assert!(
            matches!(read(&value), Err(ManifestError::Missing(_))),
            "{field}"
        );
    }
    let mut value = pod();
    value.as_object_mut().unwrap().remove("spec");
    assert!(matches!(read(&value), Err(ManifestError::Missing("spec"))));
    assert!(matches!(
        Manifest::from_json(b"{"),
        Err(ManifestError::Parse(_))
    ));
    assert!(matches!(
        Manifest::from_json(b"[]"),
        Err(ManifestError::Parse(_))
    ));
    assert!(matches!(
        Manifest::from_json(br#"{"kind":"ConfigMap"}"#),
        Err(ManifestError::Parse(_))
    ));
}

#[test]
fn the_digest_tells_same_from_different() {
    let first = read(&pod()).unwrap();
    let mut same = pod();
    same["status"] = json!({"phase": "Running"});
    same["metadata"]["resourceVersion"] = json!("7");
    same["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    same["metadata"]["annotations"]["kubernetes.io/config.seen"] = json!("2027-01-02T03:04:05Z");
    assert_eq!(read(&same).unwrap().digest(), first.digest());
    for (pointer, value) in [
        ("/spec/fieldOfTomorrow", json!(false)),
        ("/spec/containers/0/image", json!("b2")),
        ("/metadata/annotations/mine", json!("x")),
        ("/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z")),
    ] {
        let mut other = pod();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[key] = value;
        assert_ne!(read(&other).unwrap().digest(), first.digest(), "{pointer}");
    }
}

#[test]
fn debug_output_shows_no_content() {
    let mut value = pod();
    value["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": "hunter2"}]);
    assert!(!format!("{:?}", read(&value).unwrap()).contains("hunter2"));
}

#[test]
fn parts_are_the_containers_in_their_manifest() {
    let manifest = read(&pod()).unwrap();
    let parts: Vec<_> = manifest.parts().collect();
    let all: Vec<_> = manifest.all_containers().collect();
    assert_eq!(parts.len(), all.len());
    for ((kind, part), (of, container)) in parts.iter().zip(all) {
        assert!(*kind == of && std::ptr::eq(&raw const **part, container));
    }
    let again: Vec<_> = read(&pod()).unwrap().parts().collect();
    assert_eq!(parts, again);
    let other = pod()
        .to_string()
        .replace(r#""image":"b""#, r#""image":"d""#);
    let other = Manifest::from_json(other.as_bytes()).unwrap();
    let same = |(one, two): (&(ContainerKind, Part), (ContainerKind, Part))| one.1 == two.1;
    let same: Vec<_> = parts.iter().zip(other.parts()).map(same).collect();
    assert_eq!(same, [true, true, false, false, true]);
}
