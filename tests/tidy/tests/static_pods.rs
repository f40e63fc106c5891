//! The kubelet's uids of static pods: the committed files are what the kubelet's own code computes.

use std::fs;

use polylet_tidy::{root, static_pods};

#[test]
#[ignore = "needs Go, and minutes for the first build: cargo verify"]
fn uids_of_static_pods_are_those_of_a_kubelet() {
    let fresh = tempfile::tempdir().expect("a directory for generated files");
    static_pods::generate_into(&root(), fresh.path()).expect("the Go program runs");
    for (_, name) in static_pods::FILES {
        let read = |path: std::path::PathBuf| fs::read_to_string(path).expect("a file");
        let committed = root().join(static_pods::DIRECTORY).join(name);
        assert!(
            read(committed) == read(fresh.path().join(name)),
            "{}/{name} is stale: run `cargo generate static-pods`",
            static_pods::DIRECTORY
        );
    }
}
