//! Replacement of the manifest directory while its pods run.

use std::fs;

use polylet_wire::podconfig::v1::PodSource;

mod node;

use node::Node;

fn pod(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers: [{{name: a, image: i}}]\n"
    )
}

#[tokio::test]
async fn replacing_the_directory_stops_no_pod() {
    let mut node = Node::new("staticPodPath: MANIFESTS\nfileCheckFrequency: 60s");
    let config = node.path("config.yaml");
    let text = fs::read_to_string(&config).expect("config");
    let directory = node.manifests().display().to_string();
    fs::write(&config, text.replace("MANIFESTS", &directory)).expect("config");
    node.start();
    node.put("web.yaml", &pod("web"));
    let mut watch = node.watch(PodSource::File).await;
    watch.until("the pod", |pods| pods.len() == 1).await;
    let uid = watch.pods.keys().next().expect("a pod").clone();

    let next = node.path("next");
    fs::create_dir(&next).expect("another directory");
    fs::write(next.join("web.yaml"), pod("web")).expect("the same pod");
    fs::write(next.join("more.yaml"), pod("more")).expect("another pod");
    fs::rename(node.manifests(), node.path("old")).expect("moved away");
    // The gap is reported and stops no pod.
    node.errors(|all| all.iter().any(|e| e.message.contains("does not exist")))
        .await;
    fs::rename(&next, node.manifests()).expect("moved in");
    watch
        .until("the pods of the new directory", |pods| {
            assert!(pods.contains_key(&uid), "the pod was removed");
            pods.len() == 2
        })
        .await;
}
