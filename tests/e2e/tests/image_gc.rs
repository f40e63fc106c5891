//! Image garbage collection on a small disk: images unused for too long are removed, then the least
//! recently used until usage is low enough; used, desired and pinned images are kept.

use std::fs;

use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions, image};
use serde_json::{Map, Value, json};

const MIB: usize = 1 << 20;

/// Name and day of last use in November 2023; each image occupies twice 14 MiB.
const IMAGES: [(&str, u32); 7] = [
    // Older than imageMaximumGCAge.
    ("ancient", 1),
    // In use, required by a pod that cannot start, required as a volume: all the longest unused.
    ("used", 2),
    ("wanted", 2),
    ("mounted", 2),
    ("first", 20),
    ("second", 21),
    ("third", 22),
];

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn images_are_collected_in_lru_order() {
    let mut node = prepared().await;
    let ids = import(&node).await;
    write_state_file(&node, &ids);
    ok(node.put("used.json", &with_image("used", &json!({}))));
    // It waits for a ConfigMap; its image must be kept.
    let waits = json!({ "volumes": [
        { "name": "map", "configMap": { "name": "nowhere" } },
        { "name": "data", "image": { "reference": name("mounted"), "pullPolicy": "Never" } },
    ]});
    ok(node.put("waits.json", &with_image("wanted", &waits)));
    ok(node.up().await);
    ok(node.wait_ready("used").await);

    let left = wait_for_images(&node, &["used", "wanted", "mounted", "third"]).await;
    let pinned = left.iter().any(|tag| tag == image::PAUSE);
    assert!(pinned, "the sandbox image stays: {left:?}");
    let log = fs::read_to_string(node.log()).unwrap();
    let removed: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("removed unused image"))
        .filter_map(|line| ids.iter().find(|(_, id)| line.contains(id.as_str())))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(removed, ["ancient", "first", "second"]);
    ok(node.remove());
}

fn name(image: &str) -> String {
    format!("docker.io/library/gc-{image}:1")
}

fn with_image(image: &str, more: &Value) -> String {
    let mut more = more.clone();
    more["container"] = json!({ "image": name(image), "imagePullPolicy": "Never" });
    let pod_name = if image == "used" { "used" } else { "waits" };
    pod(pod_name, RUNS, &more)
}

/// A node without services, with a disk of 240 MiB.
async fn prepared() -> Node {
    polylet_harness::guard::on_signals();
    let options = NodeOptions {
        image_disk: Some(240),
        kubelet: json!({
            // Seven images occupy about 200 MiB. Without the oldest it is 172, which is 18 above the low
            // threshold: two images by the sizes that the runtime reports.
            "imageGCHighThresholdPercent": 65,
            "imageGCLowThresholdPercent": 64,
            "imageMinimumGCAge": "1s",
            "imageMaximumGCAge": max_age(),
        }),
        ..NodeOptions::default()
    };
    ok(Node::prepare(options, &|_| {}).await)
}

/// Between the age of "ancient" and all others.
fn max_age() -> String {
    let since_then = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_698_840_000))
        .unwrap();
    // Between the ages of 1 and 2 November 2023.
    format!("{}h", since_then.as_secs() / 3600 - 12)
}

/// Imports all images and returns their names and ids.
async fn import(node: &Node) -> Vec<(String, String)> {
    let config = json!({ "Env": ["PATH=/bin"] });
    for (image_name, _) in IMAGES {
        let made = image::write_sized(node.scratch(), &name(image_name), &config, 12 * MIB);
        let archive = ok(made);
        ok(node.containerd.import(&archive));
        fs::remove_file(archive).unwrap();
    }
    let poll = || async {
        let images = ok(node.containerd.cri().images().await);
        let mut ids = Vec::new();
        for (image_name, _) in IMAGES {
            let tag = name(image_name);
            let found = images.iter().find(|image| image.repo_tags.contains(&tag));
            ids.extend(found.map(|image| (image_name.to_owned(), image.id.clone())));
        }
        match ids.len() {
            n if n == IMAGES.len() => Poll::Ready(ids),
            n => Poll::Pending(format!("{n} images")),
        }
    };
    ok(until("all images in the runtime's list", poll).await)
}

/// Writes the state of an earlier image-gc process.
fn write_state_file(node: &Node, ids: &[(String, String)]) {
    let ages: Map<String, Value> = ids
        .iter()
        .zip(IMAGES)
        .map(|((_, id), (_, day))| {
            let ages = json!({
                "first_detected": "2023-11-01T00:00:00Z",
                "last_used": format!("2023-11-{day:02}T12:00:00Z"),
            });
            (id.clone(), ages)
        })
        .collect();
    let dir = node.dirs().state.join("image-gc");
    fs::create_dir_all(&dir).unwrap();
    let content = json!({ "version": 1, "data": ages });
    fs::write(dir.join("ages.json"), content.to_string()).unwrap();
}

/// Waits until only these images are left and returns the names of all images in the runtime.
async fn wait_for_images(node: &Node, expected: &[&str]) -> Vec<String> {
    let poll = || async {
        let images = ok(node.containerd.cri().images().await);
        let tags: Vec<String> = images.into_iter().flat_map(|i| i.repo_tags).collect();
        let present = IMAGES.iter().filter(|(i, _)| tags.contains(&name(i)));
        let present: Vec<&str> = present.map(|(image, _)| *image).collect();
        if present == expected {
            return Poll::Ready(tags);
        }
        Poll::Pending(format!("{present:?}"))
    };
    ok(until("the images that stay, and no others", poll).await)
}
