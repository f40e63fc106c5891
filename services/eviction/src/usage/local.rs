//! What pods use of the node's disk, as far as they set limits on it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::{Places, pod};
use crate::core::facts::{Held, Wanted};
use crate::core::limits::LocalUse;
use crate::sample::tree;

/// What was counted of one pod, and how long that took.
pub(crate) struct Counted {
    pub(crate) uid: String,
    pub(crate) used: LocalUse,
    pub(crate) took: Duration,
}

/// Counts one pod. `layers` are the writable layers of containers by id.
pub(super) fn count(
    places: &Places,
    layers: &BTreeMap<String, tree::Use>,
    uid: String,
    wanted: &Wanted,
    held: &Held,
) -> Counted {
    let begun = Instant::now();
    let pod = places.root.join("pods").join(&uid);
    let limits = &wanted.limits;
    let volume = |plugin: &str, name: &str| {
        let path = pod.join("volumes").join(plugin).join(name);
        tree::measure(&path).bytes
    };
    let sized = limits.empty_dirs.iter().map(|limit| &limit.name);
    let mut used = LocalUse {
        empty_dirs: sized
            .map(|name| (name.clone(), volume("kubernetes.io~empty-dir", name)))
            .collect(),
        ..LocalUse::default()
    };
    if limits.counts_containers() {
        let logs = pod::logs_of(places, &uid, held);
        for running in &held.running {
            let own = tree::measure(&logs.join(&running.name)).bytes;
            let layer = layers.get(&running.id).map_or(0, |layer| layer.bytes);
            used.containers.insert(running.name.clone(), (own, layer));
        }
        let volumes = limits.own_volumes.iter().map(|own| {
            let known = used.empty_dirs.get(&own.name).copied();
            known.unwrap_or_else(|| volume(own.plugin, &own.name))
        });
        let files = tree::measure(&logs).bytes;
        let files = files.saturating_add(tree::measure(&pod.join("etc-hosts")).bytes);
        used.rest = volumes.fold(files, u64::saturating_add);
    }
    Counted {
        uid,
        used,
        took: begun.elapsed(),
    }
}
