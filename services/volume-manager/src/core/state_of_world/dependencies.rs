//! Everything that volumes depend on, as received: objects, tokens, certificates, drivers, the node.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use polylet_model::PodUid;

use super::subscription_changes::{SubscriptionChange, SubscriptionChanges};
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
    objects: BTreeMap<Arc<ReferenceKey>, UsedObject>,
    /// The objects that each pod refers to, in order.
    references: BTreeMap<PodUid, Vec<Arc<ReferenceKey>>>,
    tokens: BTreeMap<PodTokenKey, TokenState>,
    certificates: BTreeMap<CertificateKey, CertificateState>,
    subscriptions: SubscriptionChanges,
    /// The drivers on this node, by the socket of their registration.
    drivers: BTreeMap<PathBuf, RegisteredDriver>,
    /// The name of this node.
    pub(super) node_name: String,
    /// The Node object, once received.
    pub(super) node_info: Option<NodeInfo>,
}

/// An object that pods refer to.
#[derive(Debug, Default)]
struct UsedObject {
    state: ObjectState,
    /// The pods.
    users: BTreeSet<PodUid>,
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
        self.objects
            .get(key)
            .map_or(&NOT_SYNCED, |used| &used.state)
    }

    /// A token, as received.
    pub(super) fn token(&self, key: &PodTokenKey) -> TokenState {
        self.tokens.get(key).cloned().unwrap_or_default()
    }

    /// A certificate, as received.
    pub(super) fn certificate(&self, key: &CertificateKey) -> CertificateState {
        self.certificates.get(key).cloned().unwrap_or_default()
    }

    /// An object has been received; returns the pods that refer to it if this is a change.
    pub(super) fn update_object(&mut self, key: &ReferenceKey, state: ObjectState) -> Vec<PodUid> {
        let Some(used) = self.objects.get_mut(key) else {
            return Vec::new();
        };
        // An object that has been received stays while it cannot be had.
        let is_received = !matches!(used.state, ObjectState::Unknown(_) | ObjectState::NotSynced);
        let is_unknown = matches!(state, ObjectState::Unknown(_) | ObjectState::NotSynced);
        if used.state == state || (is_unknown && is_received) {
            return Vec::new();
        }
        used.state = state;
        if !used.state.may_change() {
            let change = SubscriptionChange::Unsubscribe(key.clone());
            self.subscriptions.objects.push(change);
        }
        used.users.iter().cloned().collect()
    }

    /// Takes what is to be followed from now on, and what no longer.
    pub(super) fn take_subscription_changes(&mut self) -> SubscriptionChanges {
        std::mem::take(&mut self.subscriptions)
    }

    /// The result of a token request; returns whether it changes the state of the token.
    pub(super) fn update_token(
        &mut self,
        key: &PodTokenKey,
        result: Result<IssuedToken, String>,
        now: Timestamp,
    ) -> bool {
        let token = self.tokens.get_mut(key);
        token.is_some_and(|token| token.update(result, now))
    }

    /// The state of a certificate; returns whether it has changed.
    pub(super) fn update_certificate(
        &mut self,
        key: &CertificateKey,
        report: ReportedCertificate,
    ) -> bool {
        let certificate = self.certificates.get_mut(key);
        certificate.is_some_and(|certificate| certificate.update(report))
    }

    /// Sets the objects that a pod refers to. Those that no pod refers to any more are forgotten.
    pub(super) fn set_references(&mut self, uid: &PodUid, objects: BTreeSet<ReferenceKey>) {
        let before = self.references.remove(uid).unwrap_or_default();
        let mut references = Vec::with_capacity(objects.len());
        for key in objects {
            let key = match self.objects.get_key_value(&key) {
                Some((known, _)) => Arc::clone(known),
                None => {
                    let change = SubscriptionChange::Subscribe(key.clone());
                    self.subscriptions.objects.push(change);
                    Arc::new(key)
                }
            };
            let used = self.objects.entry(Arc::clone(&key)).or_default();
            used.users.insert(uid.clone());
            references.push(key);
        }
        for key in before {
            if references.binary_search(&key).is_err() {
                self.remove_user(&key, uid);
            }
        }
        if !references.is_empty() {
            self.references.insert(uid.clone(), references);
        }
    }

    fn remove_user(&mut self, key: &Arc<ReferenceKey>, uid: &PodUid) {
        let Some(used) = self.objects.get_mut(key) else {
            return;
        };
        used.users.remove(uid);
        if used.users.is_empty() {
            self.objects.remove(key);
            let change = SubscriptionChange::Unsubscribe(ReferenceKey::clone(key));
            self.subscriptions.objects.push(change);
        }
    }

    /// Sets the tokens and certificates that a pod needs.
    pub(super) fn set_credentials(
        &mut self,
        uid: &PodUid,
        tokens: BTreeSet<PodTokenKey>,
        certificates: BTreeSet<CertificateKey>,
    ) {
        let first = PodTokenKey::first_of(uid);
        let before = self.tokens.range(first..).map(|(key, _)| key);
        let before = before.take_while(|key| key.uid == *uid).cloned();
        let before: Vec<_> = before.collect();
        let changes = &mut self.subscriptions.tokens;
        set_keys(&mut self.tokens, before, tokens, changes);

        let first = CertificateKey::first_of(uid);
        let before = self.certificates.range(first..).map(|(key, _)| key);
        let before = before.take_while(|key| key.uid == *uid).cloned();
        let before: Vec<_> = before.collect();
        let changes = &mut self.subscriptions.certificates;
        set_keys(&mut self.certificates, before, certificates, changes);
    }

    /// Forgets a pod.
    pub(super) fn remove_pod(&mut self, uid: &PodUid) {
        self.set_references(uid, BTreeSet::new());
        self.set_credentials(uid, BTreeSet::new(), BTreeSet::new());
    }
}

/// Replaces keys of a map; what is known of those that stay is kept.
fn set_keys<K: Ord + Clone, V: Default>(
    known: &mut BTreeMap<K, V>,
    before: Vec<K>,
    keys: BTreeSet<K>,
    changes: &mut Vec<SubscriptionChange<K>>,
) {
    for key in before.into_iter().filter(|key| !keys.contains(key)) {
        known.remove(&key);
        changes.push(SubscriptionChange::Unsubscribe(key));
    }
    for key in keys {
        known.entry(key.clone()).or_insert_with(|| {
            changes.push(SubscriptionChange::Subscribe(key));
            V::default()
        });
    }
}
