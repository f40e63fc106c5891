use proptest::prelude::*;

use super::*;
use crate::core::builtin::Medium;
use crate::core::certificates::CertificateKey;
use crate::core::csi_volume::RegisteredDriver;
use crate::core::layout;
use crate::core::node_info::NodeInfo;
use crate::core::reference_key::ReferenceKey;
use crate::core::spec::KeyPath;
use crate::core::tokens::{IssuedToken, PodTokenKey};

fn key() -> ReferenceKey {
    ReferenceKey {
        kind: ObjectKind::ConfigMap,
        namespace: "ns".into(),
        name: "c".into(),
        cluster: false,
    }
}

fn spec(items: &[(&str, &str, Option<u32>)], optional: bool, gid: Option<u32>) -> FilesSpec {
    let item = |(key, path, mode): &(&str, &str, Option<u32>)| KeyPath {
        key: (*key).into(),
        path: (*path).into(),
        mode: *mode,
    };
    let items = items.iter().map(item).collect();
    let source = ObjectSource {
        key: key(),
        items,
        mode: 0o644,
        optional,
    };
    FilesSpec {
        plugin: layout::CONFIG_MAP,
        medium: Medium::Disk,
        gid,
        sources: vec![FileSource::Object(source)],
    }
}

struct OneObject<'a>(&'a ObjectState);

impl Lookup for OneObject<'_> {
    fn is_used_by_other_pod(&self, _: &str, _: &str) -> bool {
        false
    }

    fn object(&self, _: &ReferenceKey) -> &ObjectState {
        self.0
    }

    fn token(&self, _: &PodTokenKey) -> Result<IssuedToken, Blocked> {
        Err(Blocked::Imminent("waiting for a token".into()))
    }

    fn certificate(&self, _: &CertificateKey) -> Result<IssuedCertificate, Blocked> {
        Err(Blocked::Waiting("waiting for a certificate".into()))
    }

    fn registered(&self, _: &str) -> Option<&RegisteredDriver> {
        None
    }

    fn node_name(&self) -> &str {
        ""
    }

    fn node_info(&self) -> Option<&NodeInfo> {
        None
    }
}

fn project(spec: &FilesSpec, state: &ObjectState) -> Result<Vec<(String, u32)>, Blocked> {
    let files = files(spec, &OneObject(state))?;
    Ok(files
        .content
        .iter()
        .map(|(path, file)| (path.clone(), file.mode))
        .collect())
}

fn present(keys: &[&str]) -> ObjectState {
    let data = keys
        .iter()
        .map(|key| ((*key).into(), b"v".to_vec().into()))
        .collect();
    ObjectState::Present(Arc::new(ReferencedObject {
        data,
        immutable: false,
        ..ReferencedObject::default()
    }))
}

#[test]
fn projects_all_keys_or_the_items() {
    let object = present(&["a", "b"]);
    let all = project(&spec(&[], false, None), &object).unwrap();
    assert_eq!(all, [("a".into(), 0o644), ("b".into(), 0o644)]);
    let one = spec(&[("b", "x//./y", Some(0o400))], false, Some(7));
    assert_eq!(project(&one, &object).unwrap(), [("x/y".into(), 0o440)]);
}

#[test]
fn missing_objects_and_keys_are_named() {
    let waiting = |text: &str| Err(Blocked::Waiting(text.into()));
    let failed = |text: &str| Err(Blocked::Failed(text.into()));
    let required = spec(&[("k", "k", None)], false, None);
    let optional = spec(&[("k", "k", None)], true, None);
    assert_eq!(
        project(&required, &ObjectState::Absent),
        Err(Blocked::Missing("configmap \"c\" not found".into()))
    );
    let not_synced = waiting("waiting for configmap \"ns/c\"");
    assert_eq!(project(&optional, &ObjectState::NotSynced), not_synced);
    assert_eq!(project(&optional, &ObjectState::Absent), Ok(vec![]));
    assert_eq!(project(&optional, &present(&["a"])), Ok(vec![]));
    let no_key = failed("configmap references non-existent config key: k");
    assert_eq!(project(&required, &present(&["a"])), no_key);
}

#[test]
fn a_token_is_imminent_only_if_nothing_else_is_missing() {
    let mut projected = spec(&[], false, None);
    let token = super::super::spec::TokenSource {
        key: PodTokenKey {
            uid: "u".into(),
            namespace: "ns".into(),
            pod: "p".into(),
            service_account: "default".into(),
            audience: String::new(),
            expiration_seconds: 3600,
        },
        path: "token".into(),
        mode: 0o644,
        uid: None,
    };
    projected.sources.insert(0, FileSource::Token(token));
    for (state, is) in [
        (present(&["a"]), "coming"),
        (ObjectState::Absent, "missing"),
        (ObjectState::NotSynced, "waiting"),
    ] {
        let result = match project(&projected, &state) {
            Err(Blocked::Imminent(_)) => "coming",
            Err(Blocked::Missing(_)) => "missing",
            Err(Blocked::Waiting(_)) => "waiting",
            other => panic!("{other:?}"),
        };
        assert_eq!(result, is);
    }
}

#[test]
fn a_file_cannot_also_be_a_directory() {
    for (file, other, message) in [
        (
            "x",
            "x/y",
            Some(r#""x" is a file and, for "x/y", a directory"#),
        ),
        (
            "é/x",
            "é/x/y/z",
            Some(r#""é/x" is a file and, for "é/x/y/z", a directory"#),
        ),
        ("x", "xy/z", None),
        ("x/y", "x/z", None),
    ] {
        let items = spec(&[("a", file, None), ("b", other, None)], false, None);
        let result = project(&items, &present(&["a", "b"]));
        let expected = message.map(|message| Blocked::Failed(message.to_owned()));
        assert_eq!(result.err(), expected, "{file} {other}");
    }
}

#[test]
fn paths_stay_below_the_volume() {
    for bad in [
        "",
        "/a",
        "..",
        "../a",
        "a/../b",
        "..data",
        "..x/y",
        ".",
        "a\0",
        &"a".repeat(256),
    ] {
        assert!(clean(bad).is_err(), "{bad:?}");
    }
    for (path, is) in [
        ("a", "a"),
        ("./a//b/", "a/b"),
        (".a", ".a"),
        ("a/..b", "a/..b"),
    ] {
        assert_eq!(clean(path).as_deref(), Ok(is));
    }
}

proptest! {
    #[test]
    fn a_clean_path_never_leaves_the_volume(path in "[./a\\\\]{0,12}") {
        if let Ok(clean) = clean(&path) {
            let walk = std::path::Path::new(&clean);
            prop_assert!(walk.components().all(|c| matches!(c, std::path::Component::Normal(_))));
            prop_assert!(!clean.starts_with(".."));
            prop_assert_eq!(super::clean(&clean).unwrap(), clean);
        }
    }
}
