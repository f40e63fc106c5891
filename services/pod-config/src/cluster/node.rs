//! The Node object of this node.

use bytes::Bytes;
use polylet_kit::state_file::StateFileError;
use serde_json::Value;
use tokio::sync::watch;

use super::request::ApiRequestError;
use super::watcher::{EventHandler, WatchTarget};
use crate::core::cluster::node::to_json;
use crate::core::cluster::state::PersistedNode;
use crate::persist::DebouncedFile;

/// The Node as JSON, or its absence; `None` before either is known.
pub(crate) type CachedNode = Option<Option<Bytes>>;

/// The object with the node's name.
pub(crate) fn watch_target(node: &str) -> WatchTarget {
    WatchTarget {
        path: "/api/v1/nodes".to_owned(),
        selector: Some(("metadata.name", node.to_owned())),
        name: Some(node.to_owned()),
    }
}

/// The Node to persist.
pub(crate) fn to_persisted(node: &CachedNode, name: &str) -> PersistedNode {
    let manifest = node.as_ref().and_then(Option::as_ref);
    PersistedNode {
        name: name.to_owned(),
        manifest: manifest.map(|json| String::from_utf8_lossy(json).into_owned()),
    }
}

/// Publishes the Node.
pub(crate) struct NodeHandler {
    published: watch::Sender<CachedNode>,
    file: DebouncedFile<PersistedNode>,
    restored: Option<PersistedNode>,
}

impl NodeHandler {
    pub(crate) fn new(
        published: watch::Sender<CachedNode>,
        file: DebouncedFile<PersistedNode>,
        node: &str,
    ) -> Result<NodeHandler, StateFileError> {
        let restored = file.load()?.filter(|restored| restored.name == node);
        Ok(NodeHandler {
            published,
            file,
            restored,
        })
    }

    fn set_node(&mut self, node: Option<Value>) {
        self.publish(node.map(to_json));
    }

    fn publish(&mut self, node: Option<Bytes>) {
        let node = Some(node);
        let changed = self.published.send_if_modified(|published| {
            let changed = *published != node;
            *published = node;
            changed
        });
        if changed {
            self.file.schedule();
        }
    }

    fn publish_restored(&mut self) {
        if self.published.borrow().is_some() {
            return;
        }
        if let Some(manifest) = self.restored.take().and_then(|restored| restored.manifest) {
            self.publish(Some(manifest.into()));
        }
    }
}

impl EventHandler for NodeHandler {
    async fn handle_list(&mut self, objects: &mut (dyn Iterator<Item = Value> + Send)) {
        self.set_node(objects.next());
    }

    fn handle_upsert(&mut self, object: Value) {
        self.set_node(Some(object));
    }

    fn handle_delete(&mut self, _: Value) {
        self.set_node(None);
    }

    fn handle_error(&mut self, _: &ApiRequestError) {
        self.publish_restored();
    }

    fn handle_slow_start(&mut self) {
        self.publish_restored();
    }
}
