//! Names of the objects that volumes refer to.

use std::fmt;

/// The kind of a referenced object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// A `v1.ConfigMap`.
    ConfigMap,
    /// A `v1.Secret`.
    Secret,
    /// A `v1.PersistentVolumeClaim`.
    Claim,
    /// A `v1.PersistentVolume`.
    PersistentVolume,
    /// A `storage.k8s.io/v1.VolumeAttachment`.
    Attachment,
    /// A `storage.k8s.io/v1.CSIDriver`.
    CsiDriver,
    /// A `certificates.k8s.io` ClusterTrustBundle.
    TrustBundle,
    /// All ClusterTrustBundles of a signer, by the signer's name.
    TrustBundles,
}

impl ObjectKind {
    /// The kind as the API writes it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMap",
            Self::Secret => "Secret",
            Self::Claim => "PersistentVolumeClaim",
            Self::PersistentVolume => "PersistentVolume",
            Self::Attachment => "VolumeAttachment",
            Self::CsiDriver => "CSIDriver",
            Self::TrustBundle => "ClusterTrustBundle",
            Self::TrustBundles => "ClusterTrustBundleList",
        }
    }

    /// The resource as upstream's messages write it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
            Self::Claim => "persistentvolumeclaims",
            Self::PersistentVolume => "persistentvolumes",
            Self::Attachment => "volumeattachments.storage.k8s.io",
            Self::CsiDriver => "csidrivers.storage.k8s.io",
            Self::TrustBundle => "clustertrustbundle.certificates.k8s.io",
            Self::TrustBundles => "clustertrustbundles of signer",
        }
    }
}

/// Identifies one referenced object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReferenceKey {
    /// The kind.
    pub kind: ObjectKind,
    /// The namespace; empty for objects of the cluster.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// An object of the API server, not of the local manifests.
    pub cluster: bool,
}

impl ReferenceKey {
    /// An object of the API server that has no namespace.
    pub fn cluster_scoped(kind: ObjectKind, name: &str) -> Self {
        Self {
            kind,
            namespace: String::new(),
            name: name.to_owned(),
            cluster: true,
        }
    }

    /// Upstream's message for an object that does not exist.
    pub(super) fn not_found(&self) -> String {
        format!("{} \"{}\" not found", self.kind.resource(), self.name)
    }

    /// The message while the object has not been received.
    pub(super) fn not_synced(&self) -> String {
        format!("waiting for {self}")
    }
}

impl fmt::Display for ReferenceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} \"{}/{}\"",
            self.kind.resource(),
            self.namespace,
            self.name
        )
    }
}
