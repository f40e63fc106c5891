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
    /// that of one: what another resource had there is over.
    pub fn on_connected(&mut self, resource: &str, socket: &Path) {
        self.sockets.retain(|_, known| known != socket);
        self.sockets.insert(resource.to_owned(), socket.to_owned());
    }

    /// A plugin has listed its devices.
    pub fn on_listed(&mut self, resource: &str) {
        self.listed.insert(resource.to_owned());
    }

    /// The connection to a plugin at this socket is over.
    pub fn on_disconnected(&mut self, resource: &str, socket: &Path) {
        let is_over = |name: &str, known: &Path| name == resource && known == socket;
        self.sockets.retain(|name, known| !is_over(name, known));
    }

    /// Forgets the lists of resources that have expired.
    pub fn retain_listed(&mut self, is_registered: impl Fn(&str) -> bool) {
        self.listed.retain(|resource| is_registered(resource));
    }
}
