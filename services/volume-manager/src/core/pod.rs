//! Pods, as volumes know them.

use std::collections::BTreeMap;

use polylet_model::PodUid;

/// Identifies one pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodName {
    /// The uid; the key of all state.
    pub uid: PodUid,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What claims and CSI drivers need to know of the pod that a volume is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodContext {
    /// The pod.
    pub pod: PodName,
    /// The name of its service account.
    pub service_account: String,
    /// The pod's `fsGroup`.
    pub gid: Option<u32>,
    /// `fsGroupChangePolicy: OnRootMismatch`.
    pub on_root_mismatch: bool,
}

/// What is stored beside a pod's volumes once all are mounted, because the directories do not tell.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodMetadata {
    /// The pod.
    pub pod: PodName,
    /// The host paths of hostPath volumes, of volumes by claim and of volumes of CSI drivers, by volume
    /// name.
    pub host_paths: BTreeMap<String, String>,
}
