//! Valid documents, and the errors of invalid ones.

use super::*;

#[test]
fn unknown_fields_are_preserved_with_a_warning() {
    let parsed =
        read(&pod_text("web").replace("image: busybox", "image: busybox, imgaePullPolicy: Never"));
    assert!(!parsed.incomplete);
    assert_eq!(
        messages(&parsed),
        ["|spec.containers[0].imgaePullPolicy|unknown field; ignored"]
    );
    assert!(parsed.pods[0].manifest_text().contains("imgaePullPolicy"));
}

#[test]
fn invalid_documents_name_field_and_problem() {
    let cases: &[(&str, &str, &str)] = &[
        ("", "", "is empty"),
        ("# only a comment\n", "", "is empty"),
        ("just words", "", "a string is not a manifest"),
        ("- 1\n- 2\n", "", "a list is not a manifest"),
        ("a: [", "", "not YAML"),
        ("{\"a\": ", "", "not JSON"),
        ("kind: Pod\nmetadata: {name: a}\n", "apiVersion", "required"),
        ("apiVersion: v1\nmetadata: {name: a}\n", "kind", "required"),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "kind",
            "\"Deployment\" is not supported",
        ),
        (
            "apiVersion: v2\nkind: Pod\n",
            "apiVersion",
            "\"v2\" is not supported",
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
            "expected a string",
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
            "expected",
        ),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: 1\n",
            "spec",
            "expected a mapping",
        ),
        (
            "apiVersion: v1\nkind: List\nitems: 1\n",
            "items",
            "expected a list",
        ),
        ("\u{0}\u{1}", "", "not"),
    ];
    for (text, field, message) in cases {
        let parsed = read(text);
        assert!(parsed.incomplete && parsed.pods.is_empty(), "{text:?}");
        let error = &parsed.errors[0];
        assert!(
            error.field == *field && error.message.contains(message),
            "{text:?}: {error:?}"
        );
    }
    let parsed = parse(b"\xff\xfe\x00", &origin("/m/a"), &|_| None, NOW);
    assert!(parsed.errors[0].message.contains("not UTF-8"));
}

#[test]
fn error_of_two_megabytes_of_junk_is_short() {
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
        let parsed = read(&junk);
        assert!(
            parsed.incomplete && parsed.errors.len() <= 21,
            "{:?}",
            parsed.errors
        );
        assert!(
            parsed.errors.iter().all(|f| f.message.len() < 400),
            "{:?}",
            parsed.errors[0]
        );
    }
}

#[test]
fn valid_documents_of_a_file_are_used() {
    let text = format!(
        "{}---\nnot: [yaml\n---\n{}---\napiVersion: v1\nkind: Service\n",
        pod_text("a"),
        pod_text("b")
    );
    let parsed = read(&text);
    assert_eq!(
        parsed
            .pods
            .iter()
            .map(|p| p.name.as_str())
            .collect::<Vec<_>>(),
        ["a-node1", "b-node1"]
    );
    assert_eq!(parsed.pods[1].location, "document 3");
    let errors = messages(&parsed);
    assert!(
        errors[0].starts_with("document 2||not YAML") && errors[0].contains("at line 8 "),
        "{errors:?}"
    );
    assert!(errors[1].starts_with("document 4|kind|"), "{errors:?}");
}

#[test]
fn lists_and_json_are_accepted() {
    let item =
        json!({"metadata": {"name": "a"}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
    let list = json!({"apiVersion": "v1", "kind": "PodList", "items": [item, {"metadata": {}}]})
        .to_string();
    let parsed = read(&list);
    assert_eq!(parsed.pods.len(), 1);
    assert_eq!(
        (
            parsed.pods[0].location.as_str(),
            parsed.errors[0].location.as_str()
        ),
        ("item 1", "item 2")
    );
    assert_eq!(read(&format!("\u{feff}{}\n{}", list, list)).pods.len(), 2);
    assert_eq!(
        read("apiVersion: v1\nkind: PodList\nitems: []\n"),
        Parsed::default(),
        "an empty list is valid"
    );
}

#[test]
fn octal_modes_of_yaml_1_1() {
    let text =
        pod_text("web") + "  volumes: [{name: v, configMap: {name: c, defaultMode: 0640}}]\n";
    let parsed = read(&text);
    assert_eq!(parsed.errors, []);
    assert!(
        parsed.pods[0]
            .manifest_text()
            .contains("\"defaultMode\":416")
    );
}

#[test]
fn secret_values_appear_in_no_message() {
    let parsed = read(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: aGVsbG8=}\nstringData: {b: word}\n",
    );
    assert_eq!(parsed.errors, []);
    let manifest: Value = serde_json::from_slice(&parsed.objects[0].manifest).expect("JSON");
    assert_eq!(manifest["data"], json!({"a": "aGVsbG8=", "b": "d29yZA=="}));
    assert_eq!(
        (&manifest["type"], &manifest["metadata"]["namespace"]),
        (&json!("Opaque"), &json!("default"))
    );
    assert!(manifest.get("stringData").is_none());
    assert!(!format!("{parsed:?}").contains("aGVsbG8"));
    let bad = read(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {a: hunter2!, b: 12345}\nstringData: {c: [hunter2]}\n",
    );
    assert_eq!(bad.errors.len(), 3);
    assert!(!format!("{bad:?}").contains("hunter2") && !format!("{bad:?}").contains("12345"));
    let env = read(&pod_text("web").replace(
        "image: busybox",
        "image: busybox, env: [{name: A, value: 12345}]",
    ));
    assert_eq!(env.errors[0].field, "spec.containers[0].env[0].value");
    assert!(!env.errors[0].message.contains("12345"), "{env:?}");
}

#[test]
fn config_map_keys_are_validated() {
    let parsed =
        read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: n}\ndata: {a: b}\n");
    assert_eq!(
        parsed.objects[0].key,
        ObjectId {
            kind: "ConfigMap".into(),
            namespace: "n".into(),
            name: "c".into()
        }
    );
    let bad = read(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {port: 80, 'a/b': x}\nbinaryData: {port: AA==}\n",
    );
    assert_eq!(
        bad.errors
            .iter()
            .map(|f| f.field.as_str())
            .collect::<Vec<_>>(),
        ["data", "data[\"port\"]"],
        "{bad:?}"
    );
}
