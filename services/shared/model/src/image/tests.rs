use proptest::prelude::*;

use super::*;

const SHA: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[test]
fn canonical_forms() {
    let digested = format!("busybox@{SHA}");
    let both = format!("busybox:1@{SHA}");
    for (written, full) in [
        ("busybox", "docker.io/library/busybox:latest"),
        ("busybox:1.36", "docker.io/library/busybox:1.36"),
        (
            "index.docker.io/busybox",
            "docker.io/library/busybox:latest",
        ),
        ("docker.io/busybox", "docker.io/library/busybox:latest"),
        ("user/app", "docker.io/user/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app", "localhost:5000/app:latest"),
        ("registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"),
        ("UPPER/app", "UPPER/app:latest"),
        ("host:5000/a/b/c:v1", "host:5000/a/b/c:v1"),
        ("[2001:db8::1]:5000/a", "[2001:db8::1]:5000/a:latest"),
        ("a__b/c-d---e.f", "docker.io/a__b/c-d---e.f:latest"),
        (&digested, &format!("docker.io/library/{digested}")),
        (&both, &format!("docker.io/library/{both}")),
    ] {
        assert_eq!(normalize(written).as_deref(), Ok(full), "{written}");
    }
}

#[test]
fn invalid_references_are_rejected() {
    for invalid in [
        "",
        ":tag",
        "a b",
        "FOO",
        "foo/Bar",
        "foo:",
        "foo@",
        "foo@sha256:12",
        "foo@md5:12",
        "a//b",
        "/a",
        "a/",
        "-foo",
        "foo.",
        "a___b",
        "a..b",
        "foo:ta/g",
        "foo:-x",
        "http://x/y",
        "host:port/x",
        "[::1/x",
        "[]/x",
        "[é]/x",
        "é:é",
        "é",
        "foo\n",
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ] {
        assert!(ImageReference::parse(invalid).is_err(), "{invalid:?}");
    }
    assert!(ImageReference::parse(&format!("x:{}", "t".repeat(129))).is_err());
    assert_eq!(
        ImageReference::parse(&"a".repeat(256)),
        Err(ImageReferenceError::TooLong("a".repeat(256)))
    );
    assert_eq!(
        ImageReference::parse("foo/Bar"),
        Err(ImageReferenceError::Uppercase {
            name: "foo/Bar".into(),
            repository: "foo/Bar".into()
        })
    );
    for (invalid, message) in [
        (
            "",
            "couldn't parse image name \"\": invalid reference format",
        ),
        (
            "Not An Image",
            "couldn't parse image name \"Not An Image\": invalid reference format: repository name (library/Not An Image) must be lowercase",
        ),
        (
            "a:b:c",
            "couldn't parse image name \"a:b:c\": invalid reference format",
        ),
        (
            "a:B:c",
            "couldn't parse image name \"a:B:c\": invalid reference format",
        ),
    ] {
        assert_eq!(
            ImageReference::parse(invalid).unwrap_err().to_string(),
            message
        );
    }
}

#[test]
fn references_for_the_runtime_have_a_tag() {
    assert_eq!(with_default_tag("busybox").as_deref(), Ok("busybox:latest"));
    assert_eq!(
        with_default_tag("h:5000/busybox").as_deref(),
        Ok("h:5000/busybox:latest")
    );
    assert_eq!(with_default_tag("busybox:1").as_deref(), Ok("busybox:1"));
    let digest = format!("busybox@{SHA}");
    assert_eq!(with_default_tag(&digest).as_deref(), Ok(digest.as_str()));
}

#[test]
fn references_without_tag_and_digest() {
    let both = format!("h:5000/a/b:1@{SHA}");
    for (written, name) in [
        ("busybox", Some("busybox")),
        ("busybox:1", Some("busybox")),
        ("h:5000/a", Some("h:5000/a")),
        ("h:5000/a:5000", Some("h:5000/a")),
        (&*both, Some("h:5000/a/b")),
        ("not valid", None),
    ] {
        assert_eq!(without_tag(written), name, "{written}");
    }
    assert_eq!(
        ImageReference::parse("a:1").unwrap().name(),
        "docker.io/library/a"
    );
}

#[test]
fn pull_policy_follows_the_tag() {
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("h:1/a", "Always"),
        (&*format!("a@{SHA}"), "IfNotPresent"),
        ("NOT VALID", "IfNotPresent"),
    ] {
        assert_eq!(default_pull_policy(image), policy, "{image}");
    }
}

#[test]
fn different_references_to_the_same_image() {
    assert!(same_image("busybox", "docker.io/library/busybox:latest"));
    assert!(!same_image("busybox", "busybox:1"));
    assert!(same_image("not valid", "not valid"));
}

proptest! {
    #[test]
    fn parsing_never_panics_and_canonical_forms_are_stable(text in ".{0,80}") {
        if let Ok(reference) = ImageReference::parse(&text) {
            let full = reference.canonical();
            prop_assert_eq!(ImageReference::parse(&full), Ok(reference));
        }
    }
    #[test]
    fn likely_references(text in "([a-z.]{1,6}(:[0-9]{1,3})?/)?[a-z0-9._-]{1,9}(:[a-zA-Z0-9._-]{0,5})?(@sha256:[0-9a-f]{64})?") {
        if let Ok(reference) = ImageReference::parse(&text) {
            prop_assert_eq!(normalize(&reference.canonical()), Ok(reference.canonical()));
        }
    }
}
