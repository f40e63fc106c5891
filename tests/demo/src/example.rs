use polylet_harness::{HarnessError, Node};

/// The example pod's name in its manifest.
pub(crate) const NAME: &str = "web";

/// The port its server listens on.
pub(crate) const PORT: u16 = 8080;

const MANIFESTS: [(&str, &str); 3] = [
    ("configmap.yaml", include_str!("../example/configmap.yaml")),
    ("secret.yaml", include_str!("../example/secret.yaml")),
    ("pod.yaml", include_str!("../example/pod.yaml")),
];

/// Puts the manifests into the node's directory.
pub(crate) fn put(node: &Node) -> Result<(), HarnessError> {
    MANIFESTS
        .iter()
        .try_for_each(|(name, text)| node.put(name, text))
}

/// The manifests in one text, for kubectl.
pub(crate) fn all() -> String {
    let texts: Vec<&str> = MANIFESTS.iter().map(|(_, text)| *text).collect();
    texts.join("\n---\n")
}
