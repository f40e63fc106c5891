use proptest::prelude::*;

use super::super::{AccountRef, SecretRef};
use super::*;

fn login(secret: Option<&str>, password: &str) -> Credential {
    let source = |name: &str| {
        Source::Secret(SecretRef {
            uid: "u".into(),
            namespace: "ns".into(),
            name: name.into(),
        })
    };
    Credential {
        login: Login {
            username: "me".into(),
            password: password.into(),
            email: String::new(),
        },
        source: secret.map_or(Source::Node, source),
    }
}

fn pulled_with(used: Option<&Credential>) -> Record {
    let access = Some(Access::of(used));
    noted(None, "id", "r.example/a:1", access, Timestamp::UNIX_EPOCH).unwrap()
}

#[test]
fn policies_ask() {
    let list = ["r.example/team/*".to_owned(), "r.example/one".to_owned()];
    for (name, reference, pulled, asks) in [
        ("NeverVerify", "r.example/a:1", true, false),
        ("NeverVerifyPreloadedImages", "r.example/a:1", true, true),
        ("NeverVerifyPreloadedImages", "r.example/a:1", false, false),
        ("AlwaysVerify", "r.example/a:1", false, true),
        (
            "NeverVerifyAllowlistedImages",
            "r.example/team/a:1",
            true,
            false,
        ),
        (
            "NeverVerifyAllowlistedImages",
            "r.example/one@sha256:1",
            true,
            true,
        ),
        (
            "NeverVerifyAllowlistedImages",
            "r.example/one:2",
            true,
            false,
        ),
        (
            "NeverVerifyAllowlistedImages",
            "r.example/teams:1",
            false,
            true,
        ),
    ] {
        assert_eq!(
            Policy::of(name, &list).asks(reference, pulled),
            asks,
            "{name} {reference}"
        );
    }
}

#[test]
fn an_image_is_open_to_whom_it_was_pulled_for() {
    let free = pulled_with(None);
    let node = pulled_with(Some(&login(None, "p")));
    let secret = pulled_with(Some(&login(Some("s"), "p")));
    for record in [&free, &node] {
        assert_eq!(known(Some(record), "r.example/a:2"), Known::Open);
    }
    // Another name for the same image is another place in its registry.
    assert_eq!(known(Some(&free), "r.example/b:1"), Known::Nothing);
    assert_eq!(known(None, "r.example/a:1"), Known::Nothing);
    let Known::Shown(secrets, _) = known(Some(&secret), "r.example/a:1") else {
        panic!("{secret:?}");
    };
    for (mine, password, found) in [
        ("s", "p", Some(false)),
        ("other", "p", Some(true)),
        ("s", "new", Some(true)),
        ("other", "new", None),
    ] {
        let shown = shown(&secrets, &[login(None, "p"), login(Some(mine), password)]);
        assert_eq!(shown.map(|(_, news)| news), found, "{mine} {password}");
    }
    assert_eq!(shown(&secrets, &[login(None, "p")]), None);
}

fn more(record: &Record, used: Option<&Credential>) -> Option<Record> {
    let access = Some(Access::of(used));
    noted(
        Some(record),
        "id",
        "r.example/a:1",
        access,
        Timestamp::UNIX_EPOCH,
    )
}

#[test]
fn records_grow_and_open_up() {
    let one = pulled_with(Some(&login(Some("s"), "p")));
    assert_eq!(more(&one, Some(&login(Some("s"), "p"))), None);
    let two = more(&one, Some(&login(Some("t"), "p"))).unwrap();
    assert_eq!(
        two.credential_mapping["r.example/a"]
            .kubernetes_secrets
            .len(),
        2
    );
    let new = more(&one, Some(&login(Some("s"), "q"))).unwrap();
    assert_eq!(
        new.credential_mapping["r.example/a"]
            .kubernetes_secrets
            .len(),
        1
    );
    let open = more(&two, None).unwrap();
    assert_eq!(known(Some(&open), "r.example/a:1"), Known::Open);
    assert_eq!(more(&open, Some(&login(Some("s"), "p"))), None);
    let at = Timestamp::UNIX_EPOCH;
    let unknown = noted(None, "id", "r.example/a:1", None, at).unwrap();
    assert_eq!(known(Some(&unknown), "r.example/a:1"), Known::Nothing);
}

#[test]
fn accounts_are_noted_and_shown() {
    let account = |name: &str, uid: &str| Credential {
        login: Login::default(),
        source: Source::Account(AccountRef {
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
        }),
    };
    let one = pulled_with(Some(&account("sa", "u")));
    assert_eq!(more(&one, Some(&account("sa", "u"))), None);
    let two = more(&one, Some(&account("b", "v"))).unwrap();
    let three = more(&two, Some(&login(Some("s"), "p"))).unwrap();
    let Known::Shown(secrets, accounts) = known(Some(&three), "r.example/a:1") else {
        panic!("{three:?}");
    };
    assert_eq!((secrets.len(), accounts.len()), (1, 2));
    for (logins, may) in [
        (vec![], false),
        (vec![login(None, "p"), account("sa", "u")], true),
        (vec![account("sa", "made anew")], false),
        // Only the first account counts, as upstream has it.
        (vec![account("other", "u"), account("sa", "u")], false),
    ] {
        assert_eq!(is_of(&accounts, &logins), may, "{logins:?}");
    }
    let open = more(&three, None).unwrap();
    let access = &open.credential_mapping["r.example/a"];
    assert!(access.kubernetes_service_accounts.is_empty());
    let text = serde_json::to_value(&one).unwrap();
    let expected = serde_json::json!([{"uid": "u", "namespace": "ns", "name": "sa"}]);
    let mapping = &text["credentialMapping"]["r.example/a"];
    assert_eq!(mapping["kubernetesServiceAccounts"], expected);
}

#[test]
fn hashes_are_upstreams() {
    // Of {"username":"user","password":"pass\u003c1"}.
    let text = "{\"username\":\"user\",\"password\":\"pass\\u003c1\"}";
    let login = Login {
        username: "user".into(),
        password: "pass<1".into(),
        email: String::new(),
    };
    assert_eq!(hash(&login), sha256(text));
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(sha256(""), empty);
}

#[test]
fn upstreams_records_are_read() {
    let text = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",
        "lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"id","credentialMapping":{"docker.io/a":
        {"kubernetesSecrets":[{"uid":"u","namespace":"ns","name":"s","credentialHash":"h"}],
         "kubernetesServiceAccounts":[{"uid":"u","namespace":"ns","name":"sa"}]}}}"#;
    let record: Record = serde_json::from_str(text).unwrap();
    let access = &record.credential_mapping["docker.io/a"];
    assert_eq!(access.kubernetes_secrets[0].credential_hash, "h");
}

proptest! {
    #[test]
    fn what_was_noted_is_shown_whatever_the_order(names in prop::collection::vec("[a-c]", 1..6)) {
        let mut record: Option<Record> = None;
        for name in &names {
            let access = Some(Access::of(Some(&login(Some(name), name))));
            let new = noted(record.as_ref(), "id", "r/a", access, Timestamp::UNIX_EPOCH);
            record = new.or(record);
        }
        let mut again: Option<Record> = None;
        for name in names.iter().rev() {
            let access = Some(Access::of(Some(&login(Some(name), name))));
            let new = noted(again.as_ref(), "id", "r/a", access, Timestamp::UNIX_EPOCH);
            again = new.or(again);
        }
        prop_assert_eq!(&record, &again);
        for name in &names {
            let Known::Shown(secrets, _) = known(record.as_ref(), "r/a:9") else { panic!() };
            prop_assert_eq!(shown(&secrets, &[login(Some(name), name)]).map(|(_, news)| news), Some(false));
        }
    }
}
