//! What the next process has to know of plugins: where they listen, and which have listed devices since
//! the node booted.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The records of all plugins, by resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginRecords {
    /// The sockets of plugins, from their registration to the end of their connection.
    pub sockets: BTreeMap<String, PathBuf>,
    /// The resources whose plugins have listed devices since the node booted, and have not expired.
    pub listed: BTreeSet<String>,
}

impl PluginRecords {
    /// Whether nothing is stored.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty() && self.listed.is_empty()
    }

    /// A plugin has registered and answered at this socket. Its calls name no resource, so a socket is
    /// that of one: what another resource had there is over. Returns whether anything has changed.
    pub fn on_connected(&mut self, resource: &str, socket: &Path) -> bool {
        let before = self.sockets.len();
        let is_other = |name: &str, known: &Path| name != resource && known == socket;
        self.sockets.retain(|name, known| !is_other(name, known));
        let overtaken = self.sockets.len() < before;
        let former = self.sockets.insert(resource.to_owned(), socket.to_owned());
        overtaken || former.as_deref() != Some(socket)
    }

    /// A plugin has listed its devices. Returns whether anything has changed.
    pub fn on_listed(&mut self, resource: &str) -> bool {
        self.listed.insert(resource.to_owned())
    }

    /// The connection to a plugin at this socket is over. Returns whether anything has changed.
    pub fn on_disconnected(&mut self, resource: &str, socket: &Path) -> bool {
        let known = self.sockets.get(resource);
        known.is_some_and(|known| known == socket) && self.sockets.remove(resource).is_some()
    }

    /// Forgets the lists of resources that have expired. Returns whether anything has changed.
    pub fn retain_listed(&mut self, is_registered: impl Fn(&str) -> bool) -> bool {
        let before = self.listed.len();
        self.listed.retain(|resource| is_registered(resource));
        self.listed.len() < before
    }
}
