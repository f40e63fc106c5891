//! pod-config: the real parser of manifest files, and a simulated API server. Each source syncs after
//! its first read in an incarnation.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_pod_config::core::identity::ManifestOrigin;
use polylet_pod_config::core::merge::Manifests;
use polylet_pod_config::core::parse::{Parsed, parse};
use polylet_pod_config::core::state::PersistedSource;
use polylet_pod_config::core::{StaticPod, StaticPodSource};
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{Pod, PodSource};
use polylet_wire::time::to_wire;

use crate::world::World;

/// All sources.
pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];
/// The node's name, the suffix of static pods' names.
pub const NODE: &str = "node";

/// A process instance of pod-config.
pub struct Config {
    /// The number of the instance.
    pub incarnation: u32,
    stores: BTreeMap<PodSource, Store<PodUid, Pod>>,
    files: Manifests,
}

/// Starts an instance without pods; the URL source is not configured and synced.
pub fn start(world: &mut World, incarnation: u32) {
    let mut stores = BTreeMap::new();
    for source in SOURCES {
        let store = Store::new(&format!("config-{incarnation}"));
        if source == PodSource::Http {
            store.mark_synced();
        }
        world
            .stores
            .pods
            .insert(source, Some((incarnation, store.clone())));
        stores.insert(source, store);
    }
    let files = world.disk.accepted.manifests();
    world.config = Some(Config {
        incarnation,
        stores,
        files,
    });
}

/// Parses a file.
pub fn accepted(
    origin: &str,
    bytes: &[u8],
    seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Parsed {
    let manifest_origin = ManifestOrigin {
        adoption: None,
        node: NODE,
        source: StaticPodSource::File,
        origin,
    };
    parse(bytes, &manifest_origin, seen, now)
}

/// Reads a source; if it is unavailable, its previous pods stay.
pub fn read(world: &mut World, source: PodSource, unavailable: bool) {
    let Some(store) = world.config.as_ref().and_then(|c| c.stores.get(&source)) else {
        return;
    };
    let store = store.clone();
    let pods = match source {
        PodSource::File => files(world, unavailable && store.has_synced(), unavailable),
        _ => api(world, unavailable && store.has_synced(), unavailable),
    };
    let Some(pods) = pods else { return };
    world.record(|| {
        let names: Vec<&String> = pods.keys().collect();
        format!("config: {source:?} has {names:?}")
    });
    store.replace(pods.into_iter().map(|(uid, pod)| (uid.into(), pod)));
    store.mark_synced();
}

/// Reads the manifest directory. The previous pod of an invalid file stays.
fn files(world: &mut World, updates: bool, unavailable: bool) -> Option<BTreeMap<String, Pod>> {
    let (now, files) = (world.now, &world.disk.files);
    let rewritten = &mut world.sources.rewritten;
    let config = world.config.as_mut()?;
    let known = config.files.iter().next().is_some();
    if updates || (unavailable && !known) {
        return None;
    }
    if !unavailable {
        for origin in std::mem::take(rewritten) {
            config.files.remove(&origin, now);
        }
        config
            .files
            .retain(|origin| files.contains_key(origin), now);
        for (origin, bytes) in files {
            let fingerprint = format!("{:x}", polylet_model::hash::fnv1a_128(bytes));
            if config.files.fingerprint(origin) == Some(fingerprint.as_str()) {
                continue;
            }
            let content = accepted(origin, bytes, &|uid| config.files.first_seen(uid), now);
            config.files.update(origin, content, fingerprint, now);
        }
    }
    world.disk.accepted = PersistedSource::new(
        String::new(),
        None,
        &config.files,
        BTreeMap::new(),
        BTreeMap::new(),
    );
    let view = config.files.merged();
    let pods = view.pods.into_iter();
    Some(pods.map(|(uid, (_, item))| (uid, served(&item))).collect())
}

fn served(item: &StaticPod) -> Pod {
    Pod {
        r#ref: Some(PodRef {
            uid: item.uid.clone(),
            namespace: item.namespace.clone(),
            name: item.name.clone(),
        }),
        source: PodSource::File.into(),
        digest: item.digest.clone(),
        manifest: item.manifest.clone(),
        removed_at: item.removed_at.map(to_wire),
        ..Pod::default()
    }
}

fn api(world: &mut World, updates: bool, unavailable: bool) -> Option<BTreeMap<String, Pod>> {
    let known = &world.sources.listed;
    if updates || (unavailable && known.is_empty()) {
        return None;
    }
    if !unavailable {
        let desired_pods = world.sources.desired_pods.values();
        let desired_pods = desired_pods.filter(|desired| desired.source == PodSource::Api);
        world.sources.listed = desired_pods
            .map(|desired| (desired.uid().to_owned(), desired.served()))
            .collect();
    }
    Some(world.sources.listed.clone())
}
