use super::*;

const GOOD: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: plugin
  matchImages: ["*.registry.example:5000/team", "registry.example"]
  defaultCacheDuration: 1h30m
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: KEY, value: v}]
"#;

fn one(text: &str) -> Result<Vec<CredentialProvider>, ProviderConfigError> {
    parse(&[("f.yaml".to_owned(), text.to_owned())])
}

#[test]
fn parses_a_file() {
    let providers = one(GOOD).unwrap();
    assert_eq!(providers.len(), 1);
    let plugin = &providers[0];
    assert_eq!(plugin.default_cache_duration, Duration::from_secs(5400));
    assert_eq!(plugin.env, [("KEY".to_owned(), "v".to_owned())]);
    assert!(plugin.matches_image("a.registry.example:5000/team/x"));
    assert!(plugin.matches_image("registry.example/x"));
    assert!(!plugin.matches_image("registry.example:5000/x"));
    let json = GOOD.replace("apiVersion: kubelet", "\"apiVersion\": kubelet");
    assert_eq!(one(&json).unwrap(), providers);
}

#[test]
fn parses_token_attributes() {
    let with = |more: &str| {
        let attributes = format!(
            "tokenAttributes: {{serviceAccountTokenAudience: reg, cacheType: Token, {more}}}"
        );
        one(&GOOD.replace("args: [get]", &attributes))
    };
    let plugin = with(
        "requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [example.com/role], \
         optionalServiceAccountAnnotationKeys: [region]",
    );
    let expected = TokenAttributes {
        requires_service_account: true,
        audience: "reg".into(),
        cache_per_token: true,
        required_annotations: vec!["example.com/role".into()],
        optional_annotations: vec!["region".into()],
    };
    assert_eq!(plugin.unwrap()[0].token_attributes, Some(expected));
    for (more, field) in [
        (
            "requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [a]",
            "requireServiceAccount",
        ),
        (
            "requireServiceAccount: true, requiredServiceAccountAnnotationKeys: ['a b']",
            "requiredServiceAccountAnnotationKeys",
        ),
        (
            "requireServiceAccount: true, optionalServiceAccountAnnotationKeys: [a, a]",
            "optionalServiceAccountAnnotationKeys",
        ),
    ] {
        let field = format!("providers[0].tokenAttributes.{field}");
        assert_eq!(with(more).unwrap_err().field, field);
    }
    let both = with(
        "requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [a], \
         optionalServiceAccountAnnotationKeys: [a]",
    );
    assert_eq!(both.unwrap_err().field, "providers[0].tokenAttributes");
}

#[test]
fn errors_name_the_field() {
    let twice = [("a".into(), GOOD.into()), ("b".into(), GOOD.into())];
    assert_eq!(parse(&twice).unwrap_err().field, "providers[0].name");
    for (from, to, field) in [
        ("kubelet.config.k8s.io/v1", "v1", "apiVersion"),
        ("kind: CredentialProviderConfig", "kind: Pod", "kind"),
        ("name: plugin", "name: a/b", "providers[0].name"),
        ("name: plugin", "name: ..", "providers[0].name"),
        ("name: plugin", "nam: plugin", "document"),
        (
            "credentialprovider.kubelet.k8s.io/v1",
            "v1",
            "providers[0].apiVersion",
        ),
        ("1h30m", "soon", "providers[0].defaultCacheDuration"),
        (
            "defaultCacheDuration: 1h30m",
            "",
            "providers[0].defaultCacheDuration",
        ),
        (
            "[\"*.registry.example:5000/team\", \"registry.example\"]",
            "[]",
            "providers[0].matchImages",
        ),
        (
            "registry.example\"]",
            "two words\"]",
            "providers[0].matchImages",
        ),
        (
            "args: [get]",
            "tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: true}",
            "providers[0].tokenAttributes.cacheType",
        ),
    ] {
        let error = one(&GOOD.replace(from, to)).unwrap_err();
        assert_eq!(error.field, field, "{to}: {error}");
        assert!(error.to_string().starts_with("f.yaml: "), "{error}");
    }
    let none = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\n";
    assert_eq!(one(none).unwrap_err().field, "providers");
}
