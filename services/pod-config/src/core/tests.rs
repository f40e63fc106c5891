use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::{Content, accept};
use super::decode::{Object, decode};
use super::identity::Place;
use super::kept::Kept;
use super::merge::Origins;
use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn place(origin: &str) -> Place<'_> {
    Place {
        node: "Node1",
        source: Source::File,
        origin,
    }
}

fn read(text: &str) -> Content {
    accept(text.as_bytes(), &place("/m/a.yaml"), &|_| None, NOW)
}

fn pod_text(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: busybox}}]\n"
    )
}

fn messages(content: &Content) -> Vec<String> {
    content
        .findings
        .iter()
        .map(|f| format!("{}|{}|{}", f.place, f.field, f.message))
        .collect()
}

mod properties;

#[test]
fn a_static_pod_gets_its_identity() {
    let content = read(&pod_text("web"));
    assert_eq!(content.findings, []);
    let pod = &content.pods[0];
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str()),
        ("default", "web-node1")
    );
    assert_eq!(pod.uid.len(), 32);
    let manifest: Value = serde_json::from_str(&pod.manifest).expect("JSON");
    let annotations = &manifest["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.hash"], pod.uid.as_str());
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert_eq!(
        annotations["kubernetes.io/config.seen"],
        "1970-01-01T00:00:00Z"
    );
    assert_eq!(manifest["metadata"]["uid"], pod.uid.as_str());
    assert_eq!(manifest["spec"]["nodeName"], "Node1");
    assert_eq!(
        manifest["spec"]["tolerations"],
        json!([{"operator": "Exists", "effect": "NoExecute"}])
    );
    assert_eq!(
        manifest["spec"]["restartPolicy"], "Always",
        "defaults are filled in"
    );
    assert!(manifest.get("status").is_none());
}

#[test]
fn identity_depends_on_content_node_and_place() {
    let uid = |text: &str, place: &Place<'_>| {
        accept(text.as_bytes(), place, &|_| None, NOW).pods[0]
            .uid
            .clone()
    };
    let text = pod_text("web");
    let here = uid(&text, &place("/m/a.yaml"));
    assert_eq!(here, uid(&text, &place("/m/a.yaml")));
    assert_ne!(here, uid(&text, &place("/m/b.yaml")));
    assert_ne!(
        here,
        uid(&text.replace("busybox", "other"), &place("/m/a.yaml"))
    );
    let elsewhere = Place {
        node: "Node2",
        ..place("/m/a.yaml")
    };
    assert_ne!(here, uid(&text, &elsewhere));
    let http = Place {
        source: Source::Http,
        ..place("/m/a.yaml")
    };
    let from_url = accept(text.as_bytes(), &http, &|_| None, NOW);
    assert_ne!(here, from_url.pods[0].uid);
    assert!(
        !from_url.pods[0].manifest.contains("NoExecute"),
        "the toleration is for file pods"
    );
    let own = text.replace("{name: web}", "{name: web, uid: my-own}");
    assert_eq!(uid(&own, &place("/m/a.yaml")), "my-own");
    let copied = text.replace(
        "{name: web}",
        "{name: web, annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.seen: y}, creationTimestamp: null}",
    );
    let copied = read(&copied);
    assert!(
        !copied.pods[0].manifest.contains("config.mirror"),
        "a copy of a mirror is no mirror: {copied:?}"
    );
}

#[test]
fn first_sight_is_kept_and_no_difference() {
    let text = pod_text("web");
    let later: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let first = accept(text.as_bytes(), &place("/m/a"), &|_| None, NOW);
    let again = accept(text.as_bytes(), &place("/m/a"), &|_| Some(NOW), later);
    assert_eq!(first, again);
    let forgotten = accept(text.as_bytes(), &place("/m/a"), &|_| None, later);
    assert_ne!(first.pods[0].manifest, forgotten.pods[0].manifest);
    assert_eq!(first.pods[0].digest, forgotten.pods[0].digest);
}

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

#[test]
fn a_broken_file_takes_nothing_away() {
    let mut origins = Origins::default();
    origins.learn(
        "/m/a",
        read(&format!("{}---\n{}", pod_text("a"), pod_text("b"))),
        String::new(),
    );
    let names = |origins: &Origins| {
        origins
            .view()
            .pods
            .values()
            .map(|(_, p)| p.name.clone())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let both = names(&origins);
    assert_eq!(both.len(), 2);
    origins.learn("/m/a", read("apiVersion: v1\nkind: Po"), String::new());
    assert_eq!(names(&origins), both);
    assert!(
        origins
            .view()
            .findings
            .iter()
            .any(|(_, f)| f.message.contains("default/a-node1"))
    );
    origins.learn(
        "/m/a",
        read(&format!(
            "{}---\nbroken",
            pod_text("a").replace("busybox", "new")
        )),
        String::new(),
    );
    assert_eq!(
        names(&origins),
        both,
        "the changed pod replaces its former self, the other stands"
    );
    assert_eq!(
        origins
            .view()
            .pods
            .values()
            .filter(|(_, p)| p.manifest.contains("\"new\""))
            .count(),
        1
    );
    origins.fail("/m/a", "cannot be read".into(), String::new());
    assert_eq!(names(&origins), both);
    let kept = Kept::of("n".into(), None, &origins, BTreeMap::new());
    let back: Kept =
        serde_json::from_str(&serde_json::to_string(&kept).expect("JSON")).expect("kept");
    assert_eq!(back, kept);
    assert_eq!(names(&back.origins()), both);
    origins.learn("/m/a", read(&pod_text("a")), String::new());
    assert_eq!(names(&origins).len(), 1, "a whole file does take away");
    origins.forget("/m/a");
    assert_eq!(origins.view(), Default::default());
}

#[test]
fn the_first_of_a_name_stands() {
    let mut origins = Origins::default();
    let learn = |origins: &mut Origins, file: &str| {
        origins.learn(
            file,
            accept(pod_text("a").as_bytes(), &place(file), &|_| None, NOW),
            String::new(),
        );
    };
    learn(&mut origins, "/m/b");
    learn(&mut origins, "/m/a");
    let view = origins.view();
    assert_eq!(
        view.pods
            .values()
            .map(|(origin, _)| origin.as_str())
            .collect::<Vec<_>>(),
        ["/m/a"]
    );
    let (origin, finding) = &view.findings[0];
    assert_eq!(origin, "/m/b");
    assert!(
        finding.message.contains("/m/a") && finding.message.contains("/m/b"),
        "{finding:?}"
    );
}
