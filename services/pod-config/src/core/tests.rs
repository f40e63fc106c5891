use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::adoption::{Adoption, PodLogDirectory};
use super::decode::{ManifestObject, decode};
use super::identity::ManifestOrigin;
use super::merge::Manifests;
use super::parse::{Parsed, parse};
use super::state::PersistedSource;
use super::*;

impl StaticPod {
    fn manifest_text(&self) -> &str {
        std::str::from_utf8(&self.manifest).expect("text")
    }
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn origin(path: &str) -> ManifestOrigin<'_> {
    ManifestOrigin {
        node: "Node1",
        source: StaticPodSource::File,
        origin: path,
        adoption: None,
    }
}

fn read(text: &str) -> Parsed {
    parse(text.as_bytes(), &origin("/m/a.yaml"), &|_| None, NOW)
}

fn pod_text(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: busybox}}]\n"
    )
}

fn messages(parsed: &Parsed) -> Vec<String> {
    parsed
        .errors
        .iter()
        .map(|f| format!("{}|{}|{}", f.location, f.field, f.message))
        .collect()
}

mod documents;
mod properties;
mod removals;

#[test]
fn static_pod_gets_uid_name_and_annotations() {
    let parsed = read(&pod_text("web"));
    assert_eq!(parsed.errors, []);
    let pod = &parsed.pods[0];
    assert_eq!(
        (pod.namespace.as_str(), pod.name.as_str()),
        ("default", "web-node1")
    );
    assert_eq!(pod.uid.len(), 32);
    let manifest: Value = serde_json::from_slice(&pod.manifest).expect("JSON");
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
fn uid_depends_on_content_node_and_origin() {
    let uid = |text: &str, origin: &ManifestOrigin<'_>| {
        parse(text.as_bytes(), origin, &|_| None, NOW).pods[0]
            .uid
            .clone()
    };
    let text = pod_text("web");
    let here = uid(&text, &origin("/m/a.yaml"));
    assert_eq!(here, uid(&text, &origin("/m/a.yaml")));
    assert_ne!(here, uid(&text, &origin("/m/b.yaml")));
    assert_ne!(
        here,
        uid(&text.replace("busybox", "other"), &origin("/m/a.yaml"))
    );
    let elsewhere = ManifestOrigin {
        node: "Node2",
        ..origin("/m/a.yaml")
    };
    assert_ne!(here, uid(&text, &elsewhere));
    let http = ManifestOrigin {
        source: StaticPodSource::Http,
        ..origin("/m/a.yaml")
    };
    let from_url = parse(text.as_bytes(), &http, &|_| None, NOW);
    assert_ne!(here, from_url.pods[0].uid);
    assert!(
        !from_url.pods[0].manifest_text().contains("NoExecute"),
        "the toleration is for file pods"
    );
    let own = text.replace("{name: web}", "{name: web, uid: my-own}");
    assert_eq!(uid(&own, &origin("/m/a.yaml")), "my-own");
    let copied = text.replace(
        "{name: web}",
        "{name: web, annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.seen: y}, creationTimestamp: null}",
    );
    let copied = read(&copied);
    assert!(
        !copied.pods[0].manifest_text().contains("config.mirror"),
        "the mirror annotation is removed: {copied:?}"
    );
}

#[test]
fn pod_that_a_kubelet_left_running_keeps_its_uid() {
    let text = pod_text("etcd").replace("{name", "{namespace: kube-system, name");
    let generated = read(&text).pods[0].uid.clone();
    let kubelet = "8cd7ba3c5c3ea8ff1f3ffa1d1f5ae6ab";
    let directory = format!("kube-system_etcd-node1_{kubelet}");
    let directory = PodLogDirectory::from_name(&directory, NOW).expect("a static pod");
    let mut adoption = Adoption {
        directories: [directory].into(),
        changed_at: Some(NOW),
        ..Adoption::default()
    };
    let parsed = |adoption: &Adoption, text: &str| {
        let origin = ManifestOrigin {
            adoption: Some(adoption),
            ..origin("/m/a.yaml")
        };
        parse(text.as_bytes(), &origin, &|_| None, NOW)
    };
    let adopted = parsed(&adoption, &text);
    let pod = &adopted.pods[0];
    assert_eq!(pod.uid, kubelet);
    let manifest: Value = serde_json::from_slice(&pod.manifest).expect("JSON");
    let hash = &manifest["metadata"]["annotations"]["kubernetes.io/config.hash"];
    assert_eq!(
        (&manifest["metadata"]["uid"], hash),
        (&json!(kubelet), &json!(kubelet))
    );
    assert_eq!(adopted.adopted, [kubelet.to_owned()].into());
    assert_eq!(
        adopted.uids.values().collect::<Vec<_>>(),
        [kubelet],
        "it is remembered"
    );
    assert_ne!(generated, kubelet);

    // A later start knows it without the directory; a changed manifest is another pod.
    adoption = Adoption {
        uids: adopted.uids,
        ..Adoption::default()
    };
    assert_eq!(parsed(&adoption, &text).pods[0].uid, kubelet);
    let changed = parsed(&adoption, &text.replace("busybox", "other"));
    assert!(changed.adopted.is_empty() && changed.pods[0].uid != kubelet);
    // A uid in the manifest stays.
    let own = text.replace("name: etcd", "name: etcd, uid: my-own");
    let own = parsed(&adoption, &own);
    assert_eq!((own.pods[0].uid.as_str(), own.uids.len()), ("my-own", 0));
}

#[test]
fn first_seen_is_stable_and_not_part_of_the_digest() {
    let text = pod_text("web");
    let later: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let first = parse(text.as_bytes(), &origin("/m/a"), &|_| None, NOW);
    let again = parse(text.as_bytes(), &origin("/m/a"), &|_| Some(NOW), later);
    assert_eq!(first, again);
    let forgotten = parse(text.as_bytes(), &origin("/m/a"), &|_| None, later);
    assert_ne!(first.pods[0].manifest, forgotten.pods[0].manifest);
    assert_eq!(first.pods[0].digest, forgotten.pods[0].digest);
}

#[test]
fn invalid_manifest_retains_its_previous_pods() {
    let mut manifests = Manifests::default();
    manifests.update(
        "/m/a",
        read(&format!("{}---\n{}", pod_text("a"), pod_text("b"))),
        String::new(),
        NOW,
    );
    let names = |manifests: &Manifests| {
        manifests
            .merged()
            .pods
            .values()
            .map(|(_, p)| p.name.clone())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let both = names(&manifests);
    assert_eq!(both.len(), 2);
    manifests.update("/m/a", read("apiVersion: v1\nkind: Po"), String::new(), NOW);
    assert_eq!(names(&manifests), both);
    assert!(
        manifests
            .merged()
            .errors
            .iter()
            .any(|(_, f)| f.message.contains("default/a-node1"))
    );
    manifests.update(
        "/m/a",
        read(&format!(
            "{}---\nbroken",
            pod_text("a").replace("busybox", "new")
        )),
        String::new(),
        NOW,
    );
    assert_eq!(
        names(&manifests),
        both,
        "the changed pod is updated, the other retained"
    );
    assert_eq!(
        manifests
            .merged()
            .pods
            .values()
            .filter(|(_, p)| p.manifest_text().contains("\"new\""))
            .count(),
        1
    );
    manifests.mark_failed("/m/a", "cannot be read".into(), String::new());
    assert_eq!(names(&manifests), both);
    let persisted = PersistedSource::new(
        "n".into(),
        None,
        &manifests,
        BTreeMap::new(),
        BTreeMap::new(),
    );
    let back: PersistedSource =
        serde_json::from_str(&serde_json::to_string(&persisted).expect("JSON")).expect("state");
    assert_eq!(back, persisted);
    assert_eq!(names(&back.manifests()), both);
    manifests.update("/m/a", read(&pod_text("a")), String::new(), NOW);
    assert_eq!(names(&manifests).len(), 1, "a valid manifest removes pods");
    manifests.remove("/m/a", NOW);
    assert_eq!(manifests.merged(), Default::default());
}

#[test]
fn first_pod_of_a_name_wins() {
    let mut manifests = Manifests::default();
    let update = |manifests: &mut Manifests, file: &str| {
        manifests.update(
            file,
            parse(pod_text("a").as_bytes(), &origin(file), &|_| None, NOW),
            String::new(),
            NOW,
        );
    };
    update(&mut manifests, "/m/b");
    update(&mut manifests, "/m/a");
    let merged = manifests.merged();
    assert_eq!(
        merged
            .pods
            .values()
            .map(|(origin, _)| origin.as_str())
            .collect::<Vec<_>>(),
        ["/m/a"]
    );
    let (origin, error) = &merged.errors[0];
    assert_eq!(origin, "/m/b");
    assert!(
        error.message.contains("/m/a") && error.message.contains("/m/b"),
        "{error:?}"
    );
}
