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

mod documents;
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
