use proptest::prelude::*;

use super::super::layout;
use super::super::spec::{Item, Medium};
use super::*;

fn key() -> ObjectKey {
    ObjectKey {
        kind: ObjectKind::ConfigMap,
        namespace: "ns".into(),
        name: "c".into(),
        cluster: false,
    }
}

fn spec(items: &[(&str, &str, Option<u32>)], optional: bool, gid: Option<u32>) -> FilesSpec {
    let item = |(key, path, mode): &(&str, &str, Option<u32>)| Item {
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
        sources: vec![Source::Object(source)],
    }
}

struct One<'a>(&'a ObjectState);

impl Known for One<'_> {
    fn is_elsewhere(&self, _: &str, _: &str) -> bool {
        false
    }

    fn object(&self, _: &ObjectKey) -> &ObjectState {
        self.0
    }

    fn token(&self, _: &TokenKey) -> Result<crate::core::tokens::Issued, Blocked> {
        Err(Blocked::Coming("waiting for a token".into()))
    }

    fn certificate(&self, _: &CertificateKey) -> Result<Issued, Blocked> {
        Err(Blocked::Waiting("waiting for a certificate".into()))
    }

    fn registered(&self, _: &str) -> Option<&Registered> {
        None
    }

    fn node(&self) -> &str {
        ""
    }

    fn place(&self) -> Option<&Place> {
        None
    }
}

fn made(spec: &FilesSpec, state: &ObjectState) -> Result<Vec<(String, u32)>, Blocked> {
    let files = files(spec, &One(state))?;
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
    ObjectState::Present(Arc::new(Object {
        data,
        immutable: false,
        ..Object::default()
    }))
}

#[test]
fn all_keys_or_the_items() {
    let object = present(&["a", "b"]);
    let all = made(&spec(&[], false, None), &object).unwrap();
    assert_eq!(all, [("a".into(), 0o644), ("b".into(), 0o644)]);
    let one = spec(&[("b", "x//./y", Some(0o400))], false, Some(7));
    assert_eq!(made(&one, &object).unwrap(), [("x/y".into(), 0o440)]);
}

#[test]
fn what_is_missing_is_named() {
    let waiting = |text: &str| Err(Blocked::Waiting(text.into()));
    let failed = |text: &str| Err(Blocked::Failed(text.into()));
    let required = spec(&[("k", "k", None)], false, None);
    let optional = spec(&[("k", "k", None)], true, None);
    assert_eq!(
        made(&required, &ObjectState::Absent),
        Err(Blocked::Missing("configmap \"c\" not found".into()))
    );
    let unheard = waiting("waiting to hear of configmap \"ns/c\"");
    assert_eq!(made(&optional, &ObjectState::Unheard), unheard);
    assert_eq!(made(&optional, &ObjectState::Absent), Ok(vec![]));
    assert_eq!(made(&optional, &present(&["a"])), Ok(vec![]));
    let no_key = failed("configmap references non-existent config key: k");
    assert_eq!(made(&required, &present(&["a"])), no_key);
}

#[test]
fn a_token_is_on_its_way_only_where_nothing_else_is_missing() {
    let mut projected = spec(&[], false, None);
    let token = super::super::spec::TokenSource {
        key: TokenKey {
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
    projected.sources.insert(0, Source::Token(token));
    for (state, is) in [
        (present(&["a"]), "coming"),
        (ObjectState::Absent, "missing"),
        (ObjectState::Unheard, "waiting"),
    ] {
        let said = match made(&projected, &state) {
            Err(Blocked::Coming(_)) => "coming",
            Err(Blocked::Missing(_)) => "missing",
            Err(Blocked::Waiting(_)) => "waiting",
            other => panic!("{other:?}"),
        };
        assert_eq!(said, is);
    }
}

#[test]
fn a_file_cannot_be_a_directory() {
    let clash = spec(&[("a", "x", None), ("b", "x/y", None)], false, None);
    let said = made(&clash, &present(&["a", "b"]));
    assert!(matches!(said, Err(Blocked::Failed(_))), "{said:?}");
}

#[test]
fn paths_stay_inside() {
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
    fn a_clean_path_never_leaves(path in "[./a\\\\]{0,12}") {
        if let Ok(clean) = clean(&path) {
            let walk = std::path::Path::new(&clean);
            prop_assert!(walk.components().all(|c| matches!(c, std::path::Component::Normal(_))));
            prop_assert!(!clean.starts_with(".."));
            prop_assert_eq!(super::clean(&clean).unwrap(), clean);
        }
    }
}
