//! Image collection on a small disk: what has been unused for too long goes, then the least
//! recently used until there is room; what is used, wanted or pinned stays.

use std::fs;

use polylet_e2e::{RUNS, ok, pod};
use polylet_harness::wait::{Look, until};
use polylet_harness::{Node, NodeOptions, image};
use serde_json::{Map, Value, json};

const MIB: usize = 1 << 20;

/// Name and the day of last use (of November 2023); each image takes twice 14 MiB of the disk.
const IMAGES: [(&str, u32); 7] = [
    // Longer ago than imageMaximumGCAge allows.
    ("ancient", 1),
    // In use, wanted by a pod that cannot start, wanted as a volume: all longest unused.
    ("used", 2),
    ("wanted", 2),
    ("mounted", 2),
    ("first", 20),
    ("second", 21),
    ("third", 22),
];

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn room_is_made_in_order() {
    let mut node = prepared().await;
    let ids = import(&node).await;
    keep_ages(&node, &ids);
    ok(node.put("used.json", &with_image("used", &json!({}))));
    // It waits for a ConfigMap, and its image with it.
    let waits = json!({ "volumes": [
        { "name": "map", "configMap": { "name": "nowhere" } },
        { "name": "data", "image": { "reference": name("mounted"), "pullPolicy": "Never" } },
    ]});
    ok(node.put("waits.json", &with_image("wanted", &waits)));
    ok(node.up().await);
    ok(node.wait_ready("used").await);

    let left = left(&node, &["used", "wanted", "mounted", "third"]).await;
    let pinned = left.iter().any(|tag| tag == image::PAUSE);
    assert!(pinned, "the sandbox image stays: {left:?}");
    let log = fs::read_to_string(node.log()).unwrap();
    let gone: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("removed an unused image"))
        .filter_map(|line| ids.iter().find(|(_, id)| line.contains(id.as_str())))
        .map(|(name, _)| name.as_str())
        .collect();
    assert_eq!(gone, ["ancient", "first", "second"]);
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

/// Everything but the services, with a disk of 240 MiB.
async fn prepared() -> Node {
    polylet_harness::guard::on_signals();
    let options = NodeOptions {
        image_disk: Some(240),
        kubelet: json!({
            // Seven images take about 200 MiB of it. Without the oldest it is 172, which is 18 more
            // than there may be: two images' worth, by what the runtime says of their size.
            "imageGCHighThresholdPercent": 65,
            "imageGCLowThresholdPercent": 64,
            "imageMinimumGCAge": "1s",
            "imageMaximumGCAge": max_age(),
        }),
        ..NodeOptions::default()
    };
    ok(Node::prepare(options, &|_| {}).await)
}

/// Between the ages of "ancient" and of all others.
fn max_age() -> String {
    let since_then = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_698_840_000))
        .unwrap();
    // The first of November 2023 was that long ago, to the second day it is a day less.
    format!("{}h", since_then.as_secs() / 3600 - 12)
}

/// Gives the node all images; their names and ids.
async fn import(node: &Node) -> Vec<(String, String)> {
    let config = json!({ "Env": ["PATH=/bin"] });
    for (image_name, _) in IMAGES {
        let made = image::write_sized(node.scratch(), &name(image_name), &config, 12 * MIB);
        let archive = ok(made);
        ok(node.containerd.import(&archive));
        fs::remove_file(archive).unwrap();
    }
    let look = || async {
        let images = ok(node.containerd.cri().images().await);
        let mut ids = Vec::new();
        for (image_name, _) in IMAGES {
            let tag = name(image_name);
            let found = images.iter().find(|image| image.repo_tags.contains(&tag));
            ids.extend(found.map(|image| (image_name.to_owned(), image.id.clone())));
        }
        match ids.len() {
            n if n == IMAGES.len() => Look::Done(ids),
            n => Look::NotYet(format!("{n} images")),
        }
    };
    ok(until("all images in the runtime's list", look).await)
}

/// What image-gc has kept of an earlier life.
fn keep_ages(node: &Node, ids: &[(String, String)]) {
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
    let kept = json!({ "version": 1, "data": ages });
    fs::write(dir.join("ages.json"), kept.to_string()).unwrap();
}

/// Waits until of all images only these are left, and gives the names of all that the runtime has.
async fn left(node: &Node, wanted: &[&str]) -> Vec<String> {
    let look = || async {
        let images = ok(node.containerd.cri().images().await);
        let tags: Vec<String> = images.into_iter().flat_map(|i| i.repo_tags).collect();
        let mine = IMAGES.iter().filter(|(i, _)| tags.contains(&name(i)));
        let mine: Vec<&str> = mine.map(|(image, _)| *image).collect();
        if mine == wanted {
            return Look::Done(tags);
        }
        Look::NotYet(format!("{mine:?}"))
    };
    ok(until("the images that stay, and no others", look).await)
}
