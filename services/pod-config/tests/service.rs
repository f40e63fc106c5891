//! The service as a process: a directory in, streams out.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use polylet_wire::podconfig::v1::{
    ManifestError, Pod, PodSource, WatchObjectResponse, watch_object_response,
};
use tokio::time::timeout;
use tonic::Streaming;

mod node;
#[path = "service/url.rs"]
mod url;

use node::{Node, TIMEOUT, names};

fn pod(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: {image}}}]\n"
    )
}

#[tokio::test]
async fn pods_are_added_changed_and_removed() {
    let node = Node::with_directory();
    let mut watch = node.watch(PodSource::File).await;
    watch.until("empty", |pods| pods.is_empty()).await;
    node.put("web.yaml", &pod("web", "busybox"));
    watch
        .until("the pod", |pods| names(pods) == ["web-n1"])
        .await;
    let first = watch.pods.values().next().expect("a pod").clone();
    assert!(
        first
            .cause
            .as_ref()
            .is_some_and(|c| c.traceparent.len() == 55),
        "{:?}",
        first.cause
    );
    fs::write(node.manifests().join("web.yaml"), pod("web", "other")).expect("written in place");
    watch
        .until("the changed pod", |pods| {
            pods.len() == 1 && !pods.contains_key(&first.r#ref.clone().expect("a ref").uid)
        })
        .await;
    fs::remove_file(node.manifests().join("web.yaml")).expect("removed");
    watch.until("nothing", |pods| pods.is_empty()).await;
    fs::remove_dir(node.manifests()).expect("removed");
    fs::create_dir(node.manifests()).expect("made again");
    node.put("web.yaml", &pod("again", "busybox"));
    watch
        .until("a pod of the new directory", |pods| {
            names(pods) == ["again-n1"]
        })
        .await;
}

#[tokio::test]
async fn masked_manifests_have_the_selected_fields_only() {
    let node = Node::with_directory();
    node.put("web.yaml", &pod("web", "busybox"));
    let paths = ["spec.containers.image"];
    let watch = node.watch_masked(PodSource::File, &paths).await;
    let mut watch = watch.expect("a stream");
    watch.until("the pod", |pods| pods.len() == 1).await;
    let (uid, masked) = watch.pods.iter().next().expect("a pod");
    let manifest: serde_json::Value = serde_json::from_slice(&masked.manifest).expect("a manifest");
    let expected = serde_json::json!({
        "metadata": {"name": "web-n1", "namespace": "default", "uid": uid},
        "spec": {"containers": [{"image": "busybox"}]},
    });
    assert_eq!(manifest, expected);
    let invalid = node.watch_masked(PodSource::File, &["spec..image"]).await;
    let status = invalid.err().expect("an error");
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert!(status.message().contains("spec..image"), "{status:?}");
}

#[tokio::test]
async fn half_written_file_removes_no_pod() {
    use std::io::Write;
    let node = Node::with_directory();
    node.put(
        "two.yaml",
        &format!("{}---\n{}", pod("a", "i"), pod("b", "i")),
    );
    let mut watch = node.watch(PodSource::File).await;
    watch.until("both", |pods| pods.len() == 2).await;
    let before = watch.pods.clone();
    // Truncated after the first document, while the writer pauses.
    let mut file = fs::File::create(node.manifests().join("two.yaml")).expect("truncated");
    file.write_all(pod("a", "i").as_bytes()).expect("half");
    node.put("marker.yaml", &pod("marker", "i"));
    watch
        .until("the marker", |pods| {
            names(pods).contains(&"marker-n1".to_owned())
        })
        .await;
    assert_eq!(watch.names(), ["a-n1", "b-n1", "marker-n1"]);
    file.write_all(format!("---\n{}", pod("c", "i")).as_bytes())
        .expect("the rest");
    drop(file);
    watch
        .until("the whole file", |pods| {
            names(pods) == ["a-n1", "c-n1", "marker-n1"]
        })
        .await;
    let a = |pods: &BTreeMap<String, Pod>| {
        pods.values()
            .find(|p| p.r#ref.as_ref().is_some_and(|r| r.name == "a-n1"))
            .cloned()
    };
    assert_eq!(
        a(&watch.pods),
        a(&before),
        "an unchanged pod is not changed"
    );
    // An invalid file: its pods are kept, with an error.
    node.put("two.yaml", "apiVersion: v1\nkind: Pod\nmetad");
    node.errors(|all| {
        all.iter()
            .any(|p| p.message.contains("default/a-n1, Pod default/c-n1"))
    })
    .await;
    node.put("marker.yaml", &pod("marker", "new"));
    watch
        .until("the marker", |pods| {
            pods.len() == 3
                && pods
                    .values()
                    .any(|p| String::from_utf8_lossy(&p.manifest).contains("\"new\""))
        })
        .await;
    assert_eq!(watch.names(), ["a-n1", "c-n1", "marker-n1"]);
}

#[tokio::test]
async fn restart_changes_nothing() {
    let mut node = Node::with_directory();
    node.put("a.yaml", &pod("a", "i"));
    node.put(
        "b.yaml",
        &format!("{}---\n{}", pod("b", "i"), pod("c", "i")),
    );
    let mut watch = node.watch(PodSource::File).await;
    watch.until("all", |pods| pods.len() == 3).await;
    let traces: std::collections::BTreeSet<_> = watch
        .pods
        .values()
        .map(|p| p.cause.clone().expect("a cause").traceparent)
        .collect();
    assert_eq!(traces.len(), 3, "each pod has a trace of its own");
    // Killed as soon as the state is on disk.
    let state = node.path("state/pod-config/file.json");
    let on_disk = async {
        while !fs::read_to_string(&state)
            .is_ok_and(|t| traces.iter().all(|trace| t.contains(trace)))
        {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    timeout(TIMEOUT, on_disk).await.expect("state");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        fs::metadata(&state).expect("state").permissions().mode() & 0o777,
        0o600
    );
    node.kill();
    node.put("b.yaml", "invalid after the restart");
    node.start();
    let mut again = node.watch(PodSource::File).await;
    again.until("all again", |pods| pods.len() == 3).await;
    assert_eq!(again.pods, watch.pods);
}

#[tokio::test]
async fn objects_are_served_and_updated() {
    let node = Node::with_directory();
    let mut stream = node.object("Secret", "s").await;
    let next = async |stream: &mut Streaming<WatchObjectResponse>| {
        let message = timeout(TIMEOUT, stream.message())
            .await
            .expect("in time")
            .expect("the stream")
            .expect("more");
        match message.state.expect("a state") {
            watch_object_response::State::Manifest(json) => {
                Some(String::from_utf8(json.to_vec()).expect("text"))
            }
            watch_object_response::State::Unknown(unknown) => panic!("{unknown:?}"),
            watch_object_response::State::Absent(_) => None,
        }
    };
    assert_eq!(next(&mut stream).await, None);
    let secret = |value: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{k: {value}}}\n")
    };
    node.put("s.yaml", &secret("hunter2"));
    assert!(
        next(&mut stream)
            .await
            .is_some_and(|json| json.contains("aHVudGVyMg=="))
    );
    node.put("s.yaml", &secret("swordfish"));
    assert!(
        next(&mut stream)
            .await
            .is_some_and(|json| json.contains("c3dvcmRmaXNo"))
    );
    fs::remove_file(node.manifests().join("s.yaml")).expect("removed");
    assert_eq!(next(&mut stream).await, None);
    assert!(!node.log().contains("hunter2") && !node.log().contains("aHVudGVy"));
}

#[tokio::test]
async fn invalid_files_do_not_affect_others() {
    let node = Node::with_directory();
    node.put("good.yaml", &pod("good", "i"));
    node.put("words.yaml", "this is no manifest");
    node.put(
        "kind.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n",
    );
    node.put(
        "nameless.yaml",
        "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, image: i}]}\n",
    );
    node.put("second.yaml", &pod("good", "other"));
    node.put("junk.yaml", &"{[".repeat(1 << 20));
    node.put("clash.yaml", &pod("clash", "i}, {name: a, image: i"));
    node.put(
        "volume.yaml",
        &pod("volume", "i, volumeMounts: [{name: v, mountPath: /v}]"),
    );
    node.put("slash.yaml", &pod("a/b", "i"));
    node.put(
        "grace.yaml",
        &(pod("grace", "i") + "  terminationGracePeriodSeconds: -1\n"),
    );
    node.put("image.yaml", &pod("image", "' i'"));
    node.put("unknown.yaml", &pod("unknown", "i, colour: blue"));
    node.put(".hidden.yaml", "ignored");
    let m = node.manifests();
    assert!(
        Command::new("mkfifo")
            .arg(m.join("fifo.yaml"))
            .status()
            .expect("mkfifo")
            .success()
    );
    std::os::unix::fs::symlink(m.join("loop.yaml"), m.join("loop.yaml")).expect("a loop");
    std::os::unix::fs::symlink("/nowhere", m.join("dangling.yaml")).expect("a link");
    fs::create_dir(m.join("folder")).expect("a folder");
    let mut watch = node.watch(PodSource::File).await;
    watch
        .until("the good ones", |pods| {
            names(pods) == ["good-n1", "unknown-n1"]
        })
        .await;
    let expected = [
        ("words.yaml", "", "is not a manifest"),
        ("kind.yaml", "kind", "Deployment"),
        ("nameless.yaml", "metadata.name", "required"),
        ("second.yaml", "metadata.name", "good.yaml"),
        ("junk.yaml", "", "not"),
        (
            "clash.yaml",
            "spec.containers[1].name",
            "spec.containers[0]",
        ),
        (
            "volume.yaml",
            "spec.containers[0].volumeMounts[0].name",
            "\"v\" is not a volume",
        ),
        ("slash.yaml", "metadata.name", "\"a/b\" is not a DNS name"),
        (
            "grace.yaml",
            "spec.terminationGracePeriodSeconds",
            "-1 is not at least 0",
        ),
        ("image.yaml", "spec.containers[0].image", "white space"),
        ("unknown.yaml", "spec.containers[0].colour", "unknown field"),
        ("fifo.yaml", "", "FIFO"),
        ("loop.yaml", "", "cannot be read"),
        ("dangling.yaml", "", "dangling link"),
        ("folder", "", "directory"),
    ];
    let reported = |all: &[ManifestError], (file, field, message): &(&str, &str, &str)| {
        all.iter()
            .any(|p| p.origin.ends_with(file) && p.field == *field && p.message.contains(message))
    };
    let errors = node
        .errors(|all| expected.iter().all(|one| reported(all, one)))
        .await;
    assert_eq!(errors.len(), expected.len(), "{errors:#?}");
    for (file, ..) in expected {
        let path = m.join(file);
        if path.is_dir() {
            fs::remove_dir(path)
        } else {
            fs::remove_file(path)
        }
        .expect("removed");
    }
    node.errors(|all| all.is_empty()).await;
}

#[tokio::test]
async fn unconfigured_sources_are_empty() {
    let mut node = Node::new("");
    node.start();
    for source in [PodSource::Api, PodSource::File, PodSource::Http] {
        node.watch(source)
            .await
            .until("empty", |pods| pods.is_empty())
            .await;
    }
    let mut stream = node.object("ConfigMap", "c").await;
    let message = timeout(TIMEOUT, stream.message())
        .await
        .expect("in time")
        .expect("the stream")
        .expect("more");
    assert!(matches!(
        message.state,
        Some(watch_object_response::State::Absent(_))
    ));
}

#[test]
fn version_and_descriptor_are_printed() {
    let run = |argument: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_polylet-pod-config"))
            .arg(argument)
            .output()
            .expect("run");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(run("--version").starts_with("polylet-pod-config "));
    assert!(run("--descriptor").contains("polylet.podconfig.v1"));
}

/// Prints the latency; the limit is loose, since tests share the machine.
#[tokio::test]
async fn file_becomes_a_pod_quickly() {
    let node = Node::with_directory();
    let mut watch = node.watch(PodSource::File).await;
    watch.until("empty", |pods| pods.is_empty()).await;
    let mut took = Vec::new();
    for n in 1..=50 {
        let started = std::time::Instant::now();
        node.put(&format!("p{n}.yaml"), &pod(&format!("p{n}"), "i"));
        watch.until("one more", |pods| pods.len() == n).await;
        took.push(started.elapsed());
    }
    took.sort();
    println!("file to pod: median {:?}, worst {:?}", took[25], took[49]);
    assert!(took[25] < std::time::Duration::from_millis(200));
}
