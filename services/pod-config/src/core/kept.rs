//! What outlives the process: the last accepted set, and what set each pod off.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::merge::{Origin, Origins};
use super::{ObjectItem, PodItem};

/// Version of the file.
pub const VERSION: u32 = 1;

/// The kept set of one source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Node name and path or URL: a set of another place is no use.
    pub of: String,
    /// Since when the source has been away, when it is.
    pub stale_since: Option<Timestamp>,
    /// By origin.
    pub origins: BTreeMap<String, KeptOrigin>,
    /// By uid.
    pub causes: BTreeMap<String, KeptCause>,
}

/// What one origin gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptOrigin {
    /// Pods.
    pub pods: Vec<PodItem>,
    /// Secrets and ConfigMaps.
    pub objects: Vec<ObjectItem>,
    /// See [`Origin::stamp`].
    pub stamp: String,
}

/// A cause, told again after a restart as long as the pod is the same.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptCause {
    /// Digest of the pod it belongs to.
    pub digest: String,
    /// W3C traceparent.
    pub traceparent: String,
    /// First sight of the change.
    pub observed_at: Option<Timestamp>,
}

impl Kept {
    /// The set as it stands.
    pub fn of(
        of: String,
        stale_since: Option<Timestamp>,
        origins: &Origins,
        causes: BTreeMap<String, KeptCause>,
    ) -> Self {
        let origins = origins
            .iter()
            .filter(|(_, o)| !o.pods.is_empty() || !o.objects.is_empty())
            .map(|(name, o)| {
                (
                    name.clone(),
                    KeptOrigin {
                        pods: o.pods.clone(),
                        objects: o.objects.clone(),
                        stamp: o.stamp.clone(),
                    },
                )
            })
            .collect();
        Kept {
            of,
            stale_since,
            origins,
            causes,
        }
    }

    /// The origins as they were.
    pub fn origins(&self) -> Origins {
        let mut origins = Origins::default();
        for (name, kept) in self.origins.clone() {
            let KeptOrigin {
                pods,
                objects,
                stamp,
            } = kept;
            origins.restore(
                name,
                Origin {
                    pods,
                    objects,
                    findings: Vec::new(),
                    stamp,
                },
            );
        }
        origins
    }
}
