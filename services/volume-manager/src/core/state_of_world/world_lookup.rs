//! Lookups in the state of world. One object may name another: what is looked up on the way to a
//! volume is recorded as a reference of the pod.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::dependencies::Dependencies;
use crate::core::actual_state::ActualStateOfWorld;
use crate::core::blocked::Blocked;
use crate::core::certificates::{CertificateKey, IssuedCertificate};
use crate::core::claims::{self, ResolvedVolume};
use crate::core::csi;
use crate::core::csi_volume::RegisteredDriver;
use crate::core::lookup::Lookup;
use crate::core::mount_plan::MountPlan;
use crate::core::node_info::NodeInfo;
use crate::core::payload;
use crate::core::reference_key::ReferenceKey;
use crate::core::references::ObjectState;
use crate::core::spec::{VolumeSource, VolumeSpec};
use crate::core::tokens::{IssuedToken, PodTokenKey};

/// A lookup in the state of world.
#[derive(Clone, Copy)]
pub(super) struct WorldLookup<'a> {
    pub(super) dependencies: &'a Dependencies,
    pub(super) actual: &'a ActualStateOfWorld,
}

impl Lookup for WorldLookup<'_> {
    fn object(&self, key: &ReferenceKey) -> &ObjectState {
        self.dependencies.object(key)
    }

    fn token(&self, key: &PodTokenKey) -> Result<IssuedToken, Blocked> {
        self.dependencies.token(key).issued()
    }

    fn certificate(&self, key: &CertificateKey) -> Result<IssuedCertificate, Blocked> {
        self.dependencies.certificate(key).issued()
    }

    fn registered(&self, driver: &str) -> Option<&RegisteredDriver> {
        self.dependencies.registered(driver)
    }

    fn node_name(&self) -> &str {
        &self.dependencies.node_name
    }

    fn is_used_by_other_pod(&self, uid: &str, persistent_volume: &str) -> bool {
        self.actual.is_used_by_other_pod(uid, persistent_volume)
    }

    fn node_info(&self) -> Option<&NodeInfo> {
        self.dependencies.node_info.as_ref()
    }
}

/// Records the objects and tokens that are looked up.
pub(super) struct RecordingLookup<'a> {
    lookup: WorldLookup<'a>,
    objects: RefCell<BTreeSet<ReferenceKey>>,
    tokens: RefCell<BTreeSet<PodTokenKey>>,
}

impl<'a> RecordingLookup<'a> {
    /// Starts with the objects and tokens that the spec names directly.
    pub(super) fn new(
        lookup: WorldLookup<'a>,
        objects: BTreeSet<ReferenceKey>,
        tokens: BTreeSet<PodTokenKey>,
    ) -> Self {
        Self {
            lookup,
            objects: RefCell::new(objects),
            tokens: RefCell::new(tokens),
        }
    }

    /// What has been looked up.
    pub(super) fn into_recorded(self) -> (BTreeSet<ReferenceKey>, BTreeSet<PodTokenKey>) {
        (self.objects.into_inner(), self.tokens.into_inner())
    }
}

impl Lookup for RecordingLookup<'_> {
    fn object(&self, key: &ReferenceKey) -> &ObjectState {
        self.objects.borrow_mut().insert(key.clone());
        self.lookup.object(key)
    }

    fn token(&self, key: &PodTokenKey) -> Result<IssuedToken, Blocked> {
        self.tokens.borrow_mut().insert(key.clone());
        self.lookup.token(key)
    }

    fn certificate(&self, key: &CertificateKey) -> Result<IssuedCertificate, Blocked> {
        self.lookup.certificate(key)
    }

    fn registered(&self, driver: &str) -> Option<&RegisteredDriver> {
        self.lookup.registered(driver)
    }

    fn node_name(&self) -> &str {
        self.lookup.node_name()
    }

    fn is_used_by_other_pod(&self, uid: &str, persistent_volume: &str) -> bool {
        self.lookup.is_used_by_other_pod(uid, persistent_volume)
    }

    fn node_info(&self) -> Option<&NodeInfo> {
        self.lookup.node_info()
    }
}

/// Resolves a volume to its key and plan; `None` for a volume that this node cannot have.
pub(super) fn resolve(volume: &VolumeSpec, lookup: &impl Lookup) -> Option<ResolvedVolume> {
    let key = || Some((volume.plugin()?.to_owned(), volume.name.clone()));
    Some(match &volume.source {
        VolumeSource::Builtin(plan) => (key()?, Ok(Arc::new(plan.clone()))),
        VolumeSource::Files(spec) => {
            let files = payload::files(spec, lookup);
            (key()?, files.map(|files| Arc::new(MountPlan::Files(files))))
        }
        VolumeSource::Inline(inline) => csi::inline(&volume.name, inline, lookup),
        VolumeSource::Claim(claim) => claims::resolve(&volume.name, claim, lookup),
        VolumeSource::Migrated(migrated) => {
            claims::resolve_migrated(&volume.name, migrated, lookup)
        }
        VolumeSource::Unsupported(_) => return None,
    })
}
