//! pod-config: three sources, each told once it was read in this life.

use std::collections::BTreeMap;

use polylet_watch::Store;
use polylet_wire::podconfig::v1::{Pod, PodSource};

use crate::world::World;

/// All sources.
pub const SOURCES: [PodSource; 3] = [PodSource::File, PodSource::Http, PodSource::Api];

/// A life of it.
pub struct Config {
    /// Which.
    pub life: u32,
    stores: BTreeMap<PodSource, Store<String, Pod>>,
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
    world.config = Some(Config { life, stores });
}

/// A source is read; or it is away, and what it gave before stands.
pub fn read(world: &mut World, source: PodSource, away: bool) {
    let Some(store) = world.config.as_ref().and_then(|c| c.stores.get(&source)) else {
        return;
    };
    let store = store.clone();
    let kept = world.truth.kept.get(&source).cloned().unwrap_or_default();
    let pods: BTreeMap<String, Pod> = match away {
        true if store.is_whole() || kept.is_empty() => return,
        true => kept,
        false => world
            .truth
            .wishes
            .values()
            .filter(|wish| wish.source == source)
            .map(|wish| (wish.uid().to_owned(), wish.served()))
            .collect(),
    };
    world.say(|| {
        let names: Vec<&String> = pods.keys().collect();
        format!("config: {source:?} gives {names:?}")
    });
    world.truth.kept.insert(source, pods.clone());
    store.replace(pods);
    store.mark_whole();
}
