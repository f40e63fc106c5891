//! Everything that volumes depend on, as received: objects, tokens, certificates, drivers, the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use crate::core::certificates::{CertificateKey, CertificateState, ReportedCertificate};
use crate::core::csi_volume::RegisteredDriver;
use crate::core::node_info::NodeInfo;
use crate::core::reference_key::ReferenceKey;
use crate::core::references::ObjectState;
use crate::core::tokens::{IssuedToken, PodTokenKey, TokenState};

static NOT_SYNCED: ObjectState = ObjectState::NotSynced;

/// Everything that volumes depend on.
#[derive(Debug, Default)]
pub(super) struct Dependencies {
    objects: BTreeMap<ReferenceKey, ObjectState>,
    /// The uids of the pods that refer to each object.
    users: BTreeMap<ReferenceKey, BTreeSet<String>>,
    tokens: BTreeMap<PodTokenKey, TokenState>,
    certificates: BTreeMap<CertificateKey, CertificateState>,
    /// The drivers on this node, by the socket of their registration.
    drivers: BTreeMap<PathBuf, RegisteredDriver>,
    /// The name of this node.
    pub(super) node_name: String,
    /// The Node object, once received.
    pub(super) node_info: Option<NodeInfo>,
}

impl Dependencies {
    /// Adds or removes the driver of a socket.
    pub(super) fn set_driver(&mut self, socket: &Path, driver: Option<RegisteredDriver>) {
        match driver {
            Some(driver) => drop(self.drivers.insert(socket.to_owned(), driver)),
            None => drop(self.drivers.remove(socket)),
        }
    }

    /// The names of the drivers on this node.
    pub(super) fn driver_names(&self) -> impl Iterator<Item = &str> {
        self.drivers.values().map(|driver| driver.name.as_str())
    }

    /// The driver of a name: of two the one with the higher version of CSI.
    pub(super) fn registered(&self, name: &str) -> Option<&RegisteredDriver> {
        let drivers = self.drivers.values().filter(|driver| driver.name == name);
        drivers.max_by_key(|driver| driver.version)
    }

    /// Sets the Node object; returns whether it has changed.
    pub(super) fn set_node_info(&mut self, info: NodeInfo) -> bool {
        let changed = self.node_info.as_ref() != Some(&info);
        self.node_info = Some(info);
        changed
    }

    /// An object, as received.
    pub(super) fn object(&self, key: &ReferenceKey) -> &ObjectState {
        self.objects.get(key).unwrap_or(&NOT_SYNCED)
    }

    /// A token, or that it has been requested.
    pub(super) fn token(&self, key: &PodTokenKey) -> TokenState {
        self.tokens.get(key).cloned().unwrap_or_default()
    }

    /// A certificate, or that it has been requested.
    pub(super) fn certificate(&self, key: &CertificateKey) -> CertificateState {
        self.certificates.get(key).cloned().unwrap_or_default()
    }

    /// Applies a received object; returns the pods for which this is a change.
    pub(super) fn update_object(&mut self, key: &ReferenceKey, state: ObjectState) -> Vec<String> {
        let Some(users) = self.users.get(key) else {
            return Vec::new();
        };
        // An object that has been received stays while it cannot be had.
        let is_received = |present: &ObjectState| !matches!(present, ObjectState::Unknown(_));
        let is_unknown = matches!(state, ObjectState::Unknown(_) | ObjectState::NotSynced);
        let present = self.objects.get(key);
        if present == Some(&state) || (is_unknown && present.is_some_and(is_received)) {
            return Vec::new();
        }
        let users = users.iter().cloned().collect();
        self.objects.insert(key.clone(), state);
        users
    }

    /// The objects to watch: all that pods refer to, except immutable ones once received.
    pub(super) fn watched_objects(&self) -> BTreeSet<ReferenceKey> {
        let may_change = |key: &&ReferenceKey| match self.objects.get(key) {
            Some(ObjectState::Present(object)) => !object.immutable,
            _ => true,
        };
        self.users.keys().filter(may_change).cloned().collect()
    }

    /// The tokens to request and refresh.
    pub(super) fn tokens(&self) -> BTreeSet<PodTokenKey> {
        self.tokens.keys().cloned().collect()
    }

    /// The certificates to watch.
    pub(super) fn certificates(&self) -> BTreeSet<CertificateKey> {
        self.certificates.keys().cloned().collect()
    }

    /// Applies the result of a token request; returns whether it is a change.
    pub(super) fn update_token(
        &mut self,
        key: &PodTokenKey,
        result: Result<IssuedToken, String>,
        now: Timestamp,
    ) -> bool {
        let token = self.tokens.get_mut(key);
        token.is_some_and(|token| token.update(result, now))
    }

    /// Applies the report of a certificate; returns whether it is a change.
    pub(super) fn update_certificate(
        &mut self,
        key: &CertificateKey,
        report: ReportedCertificate,
    ) -> bool {
        let certificate = self.certificates.get_mut(key);
        certificate.is_some_and(|certificate| certificate.update(report))
    }

    /// Sets the objects that a pod refers to; forgets those without any user.
    pub(super) fn set_references(&mut self, uid: &str, objects: BTreeSet<ReferenceKey>) {
        for users in self.users.values_mut() {
            users.remove(uid);
        }
        for key in objects {
            self.users.entry(key).or_default().insert(uid.to_owned());
        }
        self.users.retain(|_, users| !users.is_empty());
        let users = &self.users;
        self.objects.retain(|key, _| users.contains_key(key));
    }

    /// Sets the tokens and certificates of a pod.
    pub(super) fn set_credentials(
        &mut self,
        uid: &str,
        tokens: BTreeSet<PodTokenKey>,
        certificates: BTreeSet<CertificateKey>,
    ) {
        self.tokens
            .retain(|key, _| key.uid != uid || tokens.contains(key));
        self.certificates
            .retain(|key, _| key.uid != uid || certificates.contains(key));
        for key in tokens {
            self.tokens.entry(key).or_default();
        }
        for key in certificates {
            self.certificates.entry(key).or_default();
        }
    }

    /// Forgets all that a pod depends on.
    pub(super) fn remove_pod(&mut self, uid: &str) {
        self.set_references(uid, BTreeSet::new());
        self.set_credentials(uid, BTreeSet::new(), BTreeSet::new());
    }
}
