//! pod-config: the real reading of manifest files, and an API server that is read whole; each source
//! is told once it was read in this life.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_pod_config::core::accept::{Content, accept};
use polylet_pod_config::core::identity::Place;
use polylet_pod_config::core::kept::Kept;
use polylet_pod_config::core::merge::Origins;
use polylet_pod_config::core::{PodItem, Source};
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{Pod, PodSource};

use crate::world::World;

/// All sources.
pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];
/// The node's name; static pods carry it.
pub const NODE: &str = "node";

/// A life of it.
pub struct Config {
    /// Which.
    pub life: u32,
    stores: BTreeMap<PodSource, Store<String, Pod>>,
    files: Origins,
}

/// Nothing is told yet, but that no URL is configured.
pub fn start(world: &mut World, life: u32) {
    let mut stores = BTreeMap::new();
    for source in SOURCES {
        let store = Store::new(&format!("config-{life}"));
        if source == PodSource::Http {
            store.mark_whole();
        }
        world
            .stores
            .pods
            .insert(source, Some((life, store.clone())));
        stores.insert(source, store);
    }
    let files = world.disk.accepted.origins();
    world.config = Some(Config {
        life,
        stores,
        files,
    });
}

/// What a file holds.
pub fn accepted(
    origin: &str,
    bytes: &[u8],
    seen: &dyn Fn(&str) -> Option<Timestamp>,
    now: Timestamp,
) -> Content {
    let place = Place {
        node: NODE,
        source: Source::File,
        origin,
    };
    accept(bytes, &place, seen, now)
}

/// A source is read; or it is away, and what it gave before stands.
pub fn read(world: &mut World, source: PodSource, away: bool) {
    let Some(store) = world.config.as_ref().and_then(|c| c.stores.get(&source)) else {
        return;
    };
    let store = store.clone();
    let pods = match source {
        PodSource::File => files(world, away && store.is_whole(), away),
        _ => api(world, away && store.is_whole(), away),
    };
    let Some(pods) = pods else { return };
    world.say(|| {
        let names: Vec<&String> = pods.keys().collect();
        format!("config: {source:?} gives {names:?}")
    });
    store.replace(pods);
    store.mark_whole();
}

/// The manifest directory: of a file that is broken, what it gave before stands.
fn files(world: &mut World, told: bool, away: bool) -> Option<BTreeMap<String, Pod>> {
    let (now, files) = (world.now, &world.disk.files);
    let config = world.config.as_mut()?;
    let known = config.files.iter().next().is_some();
    if told || (away && !known) {
        return None;
    }
    if !away {
        config.files.retain(|origin| files.contains_key(origin));
        for (origin, bytes) in files {
            let stamp = format!("{:x}", polylet_model::hash::fnv1a_128(bytes));
            if config.files.stamp(origin) == Some(stamp.as_str()) {
                continue;
            }
            let content = accepted(origin, bytes, &|uid| config.files.seen(uid), now);
            config.files.learn(origin, content, stamp);
        }
    }
    world.disk.accepted = Kept::of(String::new(), None, &config.files, BTreeMap::new());
    let view = config.files.view();
    let pods = view.pods.into_iter();
    Some(pods.map(|(uid, (_, item))| (uid, served(&item))).collect())
}

fn served(item: &PodItem) -> Pod {
    Pod {
        r#ref: Some(PodRef {
            uid: item.uid.clone(),
            namespace: item.namespace.clone(),
            name: item.name.clone(),
        }),
        source: PodSource::File.into(),
        digest: item.digest.clone(),
        manifest: item.manifest.as_bytes().to_vec().into(),
        ..Pod::default()
    }
}

fn api(world: &mut World, told: bool, away: bool) -> Option<BTreeMap<String, Pod>> {
    let known = &world.truth.listed;
    if told || (away && known.is_empty()) {
        return None;
    }
    if !away {
        let wishes = world.truth.wishes.values();
        let wishes = wishes.filter(|wish| wish.source == PodSource::Api);
        world.truth.listed = wishes
            .map(|wish| (wish.uid().to_owned(), wish.served()))
            .collect();
    }
    Some(world.truth.listed.clone())
}
