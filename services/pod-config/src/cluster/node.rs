//! This node's object.

use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::follow::{Ear, Followed};
use super::request::Failure;
use crate::core::cluster::kept::KeptNode;
use crate::core::cluster::node::reduce;
use crate::keep::Paced;

/// The Node as JSON, or its absence; nothing while neither is known.
pub(crate) type Known = Option<Option<Arc<str>>>;

/// What is followed.
pub(crate) fn followed(node: &str) -> Followed {
    Followed {
        path: "/api/v1/nodes".to_owned(),
        by: Some(("metadata.name", node.to_owned())),
        name: Some(node.to_owned()),
    }
}

/// Hears of the node.
pub(crate) struct Node {
    known: watch::Sender<Known>,
    keep: Paced,
    kept: Option<KeptNode>,
}

impl Node {
    pub(crate) fn new(known: watch::Sender<Known>, keep: Paced, node: &str) -> Node {
        let kept = keep.load::<KeptNode>().filter(|kept| kept.of == node);
        Node { known, keep, kept }
    }

    fn know(&mut self, node: Option<Value>) {
        let node = node.map(|node| Arc::from(reduce(node)));
        self.tell(node);
    }

    fn tell(&mut self, node: Option<Arc<str>>) {
        let node = Some(node);
        let changed = self.known.send_if_modified(|known| {
            let changed = *known != node;
            *known = node;
            changed
        });
        if changed {
            self.keep.soon();
        }
    }

    fn fall_back(&mut self) {
        if self.known.borrow().is_some() {
            return;
        }
        if let Some(manifest) = self.kept.take().and_then(|kept| kept.manifest) {
            self.tell(Some(Arc::from(manifest)));
        }
    }
}

impl Ear for Node {
    async fn whole(&mut self, all: &mut (dyn Iterator<Item = Value> + Send)) {
        self.know(all.next());
    }

    fn changed(&mut self, object: Value) {
        self.know(Some(object));
    }

    fn gone(&mut self, _: Value) {
        self.know(None);
    }

    fn failed(&mut self, _: &Failure) {
        self.fall_back();
    }

    fn late(&mut self) {
        self.fall_back();
    }
}
