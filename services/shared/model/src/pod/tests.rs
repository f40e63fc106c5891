use serde_json::{Value, json};

use super::*;

fn parse(value: &Value) -> Result<Manifest, ManifestParseError> {
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
            "ephemeralContainers": [{"name": "debug", "image": "c", "targetContainerName": "app"}]
        }
    })
}

#[test]
fn accessors() {
    let manifest = parse(&pod()).unwrap();
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
            (ContainerKind::Ephemeral, "debug"),
        ]
    );
    let policy = |name| manifest.container_restart_policy(manifest.container(name).unwrap().1);
    assert_eq!(policy("beside"), RestartPolicy::Always);
    assert_eq!(policy("app"), RestartPolicy::OnFailure);
    assert_eq!(policy("never"), RestartPolicy::Never);
    assert_eq!(manifest.ephemeral_target("debug"), Some("app"));
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
fn required_fields() {
    for field in ["name", "namespace", "uid"] {
        let mut value = pod();
        value["metadata"][field] = json!("");
        assert!(
            matches!(parse(&value), Err(ManifestParseError::Missing(_))),
            "{field}"
        );
    }
    let mut value = pod();
    value.as_object_mut().unwrap().remove("spec");
    assert!(matches!(
        parse(&value),
        Err(ManifestParseError::Missing("spec"))
    ));
    assert!(matches!(
        Manifest::from_json(b"{"),
        Err(ManifestParseError::Parse(_))
    ));
    assert!(matches!(
        Manifest::from_json(b"[]"),
        Err(ManifestParseError::Parse(_))
    ));
    assert!(matches!(
        Manifest::from_json(br#"{"kind":"ConfigMap"}"#),
        Err(ManifestParseError::Parse(_))
    ));
}

#[test]
fn the_digest_changes_with_the_content() {
    let first = parse(&pod()).unwrap();
    let mut same = pod();
    same["status"] = json!({"phase": "Running"});
    same["metadata"]["resourceVersion"] = json!("7");
    same["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    same["metadata"]["annotations"]["kubernetes.io/config.seen"] = json!("2027-01-02T03:04:05Z");
    assert_eq!(parse(&same).unwrap().digest(), first.digest());
    for (pointer, value) in [
        ("/spec/fieldOfTomorrow", json!(false)),
        ("/spec/containers/0/image", json!("b2")),
        ("/metadata/annotations/mine", json!("x")),
        ("/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z")),
    ] {
        let mut other = pod();
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[key] = value;
        assert_ne!(parse(&other).unwrap().digest(), first.digest(), "{pointer}");
    }
}

#[test]
fn debug_output_shows_no_content() {
    let mut value = pod();
    value["spec"]["containers"][0]["env"] = json!([{"name": "PASSWORD", "value": "hunter2"}]);
    assert!(!format!("{:?}", parse(&value).unwrap()).contains("hunter2"));
}

#[test]
fn shared_containers_are_those_of_the_manifest() {
    let manifest = parse(&pod()).unwrap();
    let shared: Vec<_> = manifest.shared_containers().collect();
    let all: Vec<_> = manifest.all_containers().collect();
    assert_eq!(shared.len(), all.len());
    for ((kind, shared), (expected, container)) in shared.iter().zip(all) {
        assert!(*kind == expected && std::ptr::eq(&raw const **shared, container));
    }
    let again: Vec<_> = parse(&pod()).unwrap().shared_containers().collect();
    assert_eq!(shared, again);
    let other = pod()
        .to_string()
        .replace(r#""image":"b""#, r#""image":"d""#);
    let other = Manifest::from_json(other.as_bytes()).unwrap();
    let same = |(one, two): (
        &(ContainerKind, SharedContainer),
        (ContainerKind, SharedContainer),
    )| one.1 == two.1;
    let same: Vec<_> = shared
        .iter()
        .zip(other.shared_containers())
        .map(same)
        .collect();
    assert_eq!(same, [true, true, false, false, true]);
}

#[test]
fn unparsed_manifests_are_parsed_when_they_are_read() {
    let manifest = parse(&pod()).unwrap();
    let digest = manifest.digest().to_owned();
    let unparsed = manifest.unparsed();
    assert_eq!(unparsed, manifest);
    assert_eq!((unparsed.name(), unparsed.digest()), ("web", &*digest));
    assert_eq!(
        (unparsed.uid(), unparsed.namespace()),
        (manifest.uid(), "shop")
    );
    assert!(!unparsed.is_parsed());
    assert_eq!(unparsed.to_pod(), manifest.to_pod());
    assert!(unparsed.is_parsed());
}
