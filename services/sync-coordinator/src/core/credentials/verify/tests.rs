use proptest::prelude::*;

use super::*;
use crate::core::credentials::{SecretRef, ServiceAccountRef};

fn login(secret: Option<&str>, password: &str) -> Credential {
    let source = |name: &str| {
        CredentialSource::Secret(SecretRef {
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
        source: secret.map_or(CredentialSource::Node, source),
    }
}

fn pulled_with(used: Option<&Credential>) -> ImagePulledRecord {
    let access = Some(ImagePullCredentials::from_pull(used));
    updated_record(None, "id", "r.example/a:1", access, Timestamp::UNIX_EPOCH).unwrap()
}

#[test]
fn policies_require_verification() {
    let list = ["r.example/team/*".to_owned(), "r.example/one".to_owned()];
    for (name, reference, pulled, expected) in [
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
            VerificationPolicy::from_name(name, &list).requires_verification(reference, pulled),
            expected,
            "{name} {reference}"
        );
    }
}

#[test]
fn access_follows_the_credentials_of_the_pull() {
    let free = pulled_with(None);
    let node = pulled_with(Some(&login(None, "p")));
    let secret = pulled_with(Some(&login(Some("s"), "p")));
    for record in [&free, &node] {
        assert_eq!(
            image_access(Some(record), "r.example/a:2"),
            ImageAccess::AnyPod
        );
    }
    // Another name of the same image is another repository.
    assert_eq!(
        image_access(Some(&free), "r.example/b:1"),
        ImageAccess::Unknown
    );
    assert_eq!(image_access(None, "r.example/a:1"), ImageAccess::Unknown);
    let ImageAccess::Restricted(secrets, _) = image_access(Some(&secret), "r.example/a:1") else {
        panic!("{secret:?}");
    };
    for (secret_name, password, expected) in [
        ("s", "p", Some(false)),
        ("other", "p", Some(true)),
        ("s", "new", Some(true)),
        ("other", "new", None),
    ] {
        let matching = matching_secret(
            &secrets,
            &[login(None, "p"), login(Some(secret_name), password)],
        );
        assert_eq!(
            matching.map(|(_, update)| update),
            expected,
            "{secret_name} {password}"
        );
    }
    assert_eq!(matching_secret(&secrets, &[login(None, "p")]), None);
}

fn after_pull(record: &ImagePulledRecord, used: Option<&Credential>) -> Option<ImagePulledRecord> {
    let access = Some(ImagePullCredentials::from_pull(used));
    updated_record(
        Some(record),
        "id",
        "r.example/a:1",
        access,
        Timestamp::UNIX_EPOCH,
    )
}

#[test]
fn records_collect_secrets_until_open_to_all() {
    let one = pulled_with(Some(&login(Some("s"), "p")));
    assert_eq!(after_pull(&one, Some(&login(Some("s"), "p"))), None);
    let two = after_pull(&one, Some(&login(Some("t"), "p"))).unwrap();
    assert_eq!(
        two.credential_mapping["r.example/a"]
            .kubernetes_secrets
            .len(),
        2
    );
    let new = after_pull(&one, Some(&login(Some("s"), "q"))).unwrap();
    assert_eq!(
        new.credential_mapping["r.example/a"]
            .kubernetes_secrets
            .len(),
        1
    );
    let open = after_pull(&two, None).unwrap();
    assert_eq!(
        image_access(Some(&open), "r.example/a:1"),
        ImageAccess::AnyPod
    );
    assert_eq!(after_pull(&open, Some(&login(Some("s"), "p"))), None);
    let at = Timestamp::UNIX_EPOCH;
    let unknown = updated_record(None, "id", "r.example/a:1", None, at).unwrap();
    assert_eq!(
        image_access(Some(&unknown), "r.example/a:1"),
        ImageAccess::Unknown
    );
}

#[test]
fn service_accounts_are_recorded_and_matched() {
    let account = |name: &str, uid: &str| Credential {
        login: Login::default(),
        source: CredentialSource::ServiceAccount(ServiceAccountRef {
            namespace: "ns".into(),
            name: name.into(),
            uid: uid.into(),
        }),
    };
    let one = pulled_with(Some(&account("sa", "u")));
    assert_eq!(after_pull(&one, Some(&account("sa", "u"))), None);
    let two = after_pull(&one, Some(&account("b", "v"))).unwrap();
    let three = after_pull(&two, Some(&login(Some("s"), "p"))).unwrap();
    let ImageAccess::Restricted(secrets, accounts) = image_access(Some(&three), "r.example/a:1")
    else {
        panic!("{three:?}");
    };
    assert_eq!((secrets.len(), accounts.len()), (1, 2));
    for (logins, expected) in [
        (vec![], false),
        (vec![login(None, "p"), account("sa", "u")], true),
        (vec![account("sa", "recreated")], false),
        // As upstream, only the first account counts.
        (vec![account("other", "u"), account("sa", "u")], false),
    ] {
        assert_eq!(
            matches_service_account(&accounts, &logins),
            expected,
            "{logins:?}"
        );
    }
    let open = after_pull(&three, None).unwrap();
    let access = &open.credential_mapping["r.example/a"];
    assert!(access.kubernetes_service_accounts.is_empty());
    let text = serde_json::to_value(&one).unwrap();
    let expected = serde_json::json!([{"uid": "u", "namespace": "ns", "name": "sa"}]);
    let mapping = &text["credentialMapping"]["r.example/a"];
    assert_eq!(mapping["kubernetesServiceAccounts"], expected);
}

#[test]
fn hash_equals_upstream() {
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
fn parses_upstream_records() {
    let text = r#"{"kind":"ImagePulledRecord","apiVersion":"kubelet.config.k8s.io/v1beta1",
        "lastUpdatedTime":"2024-10-21T12:26:40Z","imageRef":"id","credentialMapping":{"docker.io/a":
        {"kubernetesSecrets":[{"uid":"u","namespace":"ns","name":"s","credentialHash":"h"}],
         "kubernetesServiceAccounts":[{"uid":"u","namespace":"ns","name":"sa"}]}}}"#;
    let record: ImagePulledRecord = serde_json::from_str(text).unwrap();
    let access = &record.credential_mapping["docker.io/a"];
    assert_eq!(access.kubernetes_secrets[0].credential_hash, "h");
}

proptest! {
    #[test]
    fn recorded_secrets_match_in_any_order(names in prop::collection::vec("[a-c]", 1..6)) {
        let mut record: Option<ImagePulledRecord> = None;
        for name in &names {
            let access = Some(ImagePullCredentials::from_pull(Some(&login(Some(name), name))));
            let new = updated_record(record.as_ref(), "id", "r/a", access, Timestamp::UNIX_EPOCH);
            record = new.or(record);
        }
        let mut again: Option<ImagePulledRecord> = None;
        for name in names.iter().rev() {
            let access = Some(ImagePullCredentials::from_pull(Some(&login(Some(name), name))));
            let new = updated_record(again.as_ref(), "id", "r/a", access, Timestamp::UNIX_EPOCH);
            again = new.or(again);
        }
        prop_assert_eq!(&record, &again);
        for name in &names {
            let ImageAccess::Restricted(secrets, _) = image_access(record.as_ref(), "r/a:9") else { panic!() };
            prop_assert_eq!(matching_secret(&secrets, &[login(Some(name), name)]).map(|(_, update)| update), Some(false));
        }
    }
}
