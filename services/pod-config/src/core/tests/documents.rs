//! What documents say, and what is said of bad ones.

use super::*;

#[test]
fn fields_of_the_future_travel_and_are_told() {
    let content =
        read(&pod_text("web").replace("image: busybox", "image: busybox, imgaePullPolicy: Never"));
    assert!(!content.broken);
    assert_eq!(
        messages(&content),
        ["|spec.containers[0].imgaePullPolicy|is not a known field: it has no effect"]
    );
    assert!(content.pods[0].manifest.contains("imgaePullPolicy"));
}

#[test]
fn bad_documents_say_what_and_where() {
    let cases: &[(&str, &str, &str)] = &[
        ("", "", "is empty"),
        ("# only a comment\n", "", "is empty"),
        ("just words", "", "a text is not a manifest"),
        ("- 1\n- 2\n", "", "a list is not a manifest"),
        ("a: [", "", "not YAML"),
        ("{\"a\": ", "", "not JSON"),
        ("kind: Pod\nmetadata: {name: a}\n", "apiVersion", "required"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "kind", "required"),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "kind",
            "\"Deployment\" is not understood",
        ),
        (
            "apiVersion: v2\nkind: Pod\n",
            "apiVersion",
            "\"v2\" is not understood",
        ),
        ("apiVersion: v1\nkind: Pod\n", "metadata.name", "required"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {generateName: a-}\n",
            "metadata.name",
            "generateName",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a/b}\n",
            "metadata.name",
            "\"a/b\" is not a DNS name",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\n",
            "metadata.name",
            "a text was expected",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a, uid: ../../etc}\nspec: {}\n",
            "metadata.uid",
            "is not at most",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n",
            "spec.containers",
            "at least one container",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: yes}\n",
            "spec.containers",
            "was found",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: 1\n",
            "spec",
            "a mapping was expected",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: 1\n",
            "items",
            "a list was expected",
        ),
        ("\u{0}\u{1}", "", "not"),
    ];
    for (text, field, message) in cases {
        let content = read(text);
        assert!(content.broken && content.pods.is_empty(), "{text:?}");
        let found = &content.findings[0];
        assert!(
            found.field == *field && found.message.contains(message),
            "{text:?}: {found:?}"
        );
    }
    let content = accept(b"\xff\xfe\x00", &place("/m/a"), &|_| None, NOW);
    assert!(content.findings[0].message.contains("not UTF-8"));
}

#[test]
fn junk_of_two_megabytes_gives_a_short_message() {
    for junk in [
        "x".repeat(2 << 20),
        "a: b: c\n".repeat(300_000),
        "---\nkind: 1\n".repeat(150_000),
        "[".repeat(2 << 20),
        "{".repeat(2 << 20),
        "[".repeat(999) + &"a,".repeat(1 << 20),
        "? ".repeat(1 << 20),
        "- ".repeat(1 << 20),
        "&a ".repeat(1 << 19),
        "\"".to_owned() + &"\\n".repeat(1 << 20),
    ] {
        let content = read(&junk);
        assert!(
            content.broken && content.findings.len() <= 21,
            "{:?}",
            content.findings
        );
        assert!(
            content.findings.iter().all(|f| f.message.len() < 400),
            "{:?}",
            content.findings[0]
        );
    }
}

#[test]
fn the_good_documents_of_a_file_stand() {
    let text = format!(
        "{}---\nnot: [yaml\n---\n{}---\napiVersion: v1\nkind: Service\n",
        pod_text("a"),
        pod_text("b")
    );
    let content = read(&text);
    assert_eq!(
        content
            .pods
            .iter()
            .map(|p| p.name.as_str())
            .collect::<Vec<_>>(),
        ["a-node1", "b-node1"]
    );
    assert_eq!(content.pods[1].place, "document 3");
    let told = messages(&content);
    assert!(
        told[0].starts_with("document 2||not YAML") && told[0].contains("at line 8 "),
        "{told:?}"
    );
    assert!(told[1].starts_with("document 4|kind|"), "{told:?}");
}

#[test]
fn lists_and_json() {
    let item =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [item, {"metadata": {}}]})
        .to_string();
    let content = read(&list);
    assert_eq!(content.pods.len(), 1);
    assert_eq!(
        (
            content.pods[0].place.as_str(),
            content.findings[0].place.as_str()
        ),
        ("item 1", "item 2")
    );
    assert_eq!(read(&format!("\u{feff}{}\n{}", list, list)).pods.len(), 2);
    assert_eq!(
        read("apiVersion: v1\nkind: PodList\nitems: []\n"),
        Content::default(),
        "an empty list is an answer"
    );
}

#[test]
fn octal_modes_of_old_yaml() {
    let text =
        pod_text("web") + "  volumes: [{name: v, configMap: {name: c, defaultMode: 0640}}]\n";
    let content = read(&text);
    assert_eq!(content.findings, []);
    assert!(content.pods[0].manifest.contains("\"defaultMode\":416"));
}

#[test]
fn secrets_are_folded_and_never_quoted() {
    let content = read(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: aGVsbG8=}\nstringData: {b: word}\n",
    );
    assert_eq!(content.findings, []);
    let manifest: Value = serde_json::from_str(&content.objects[0].manifest).expect("JSON");
    assert_eq!(manifest["data"], json!({"a": "aGVsbG8=", "b": "d29yZA=="}));
    assert_eq!(
        (&manifest["type"], &manifest["metadata"]["namespace"]),
        (&json!("Opaque"), &json!("default"))
    );
    assert!(manifest.get("stringData").is_none());
    assert!(!format!("{content:?}").contains("aGVsbG8"));
    let bad = read(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: hunter2!, b: 12345}\nstringData: {c: [hunter2]}\n",
    );
    assert_eq!(bad.findings.len(), 3);
    assert!(!format!("{bad:?}").contains("hunter2") && !format!("{bad:?}").contains("12345"));
    let env = read(&pod_text("web").replace(
        "image: busybox",
        "image: busybox, env: [{name: A, value: 12345}]",
    ));
    assert_eq!(env.findings[0].field, "spec.containers[0].env[0].value");
    assert!(!env.findings[0].message.contains("12345"), "{env:?}");
}

#[test]
fn config_maps() {
    let content =
        read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: n}\ndata: {a: b}\n");
    assert_eq!(
        content.objects[0].key,
        ObjectKey {
            kind: "ConfigMap".into(),
            namespace: "n".into(),
            name: "c".into()
        }
    );
    let bad = read(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {port: 80, 'a/b': x}\nbinaryData: {port: AA==}\n",
    );
    assert_eq!(
        bad.findings
            .iter()
            .map(|f| f.field.as_str())
            .collect::<Vec<_>>(),
        ["data", "data[\"port\"]"],
        "{bad:?}"
    );
}
