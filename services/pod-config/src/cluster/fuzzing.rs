//! Private parsers of foreign data, for the fuzz targets in `tests/fuzz`.

use std::path::Path;

use polylet_kit::state_file::StateFile;
use tokio::sync::watch;

use super::api_health::ApiHealth;
use super::object_cache::ObjectRecord;
use super::pods::{PodHandler, PodStores};
use super::request::{self, ListResponse};
use super::tokens::PersistedTokens;
use super::watcher::handle_line;
use crate::core::ObjectId;
use crate::core::cluster::state::{
    PersistedCluster, PersistedNode, PersistedServices, PodRecordKey, VERSION,
};
use crate::persist::{ImmediateWriter, KeyedLog};

/// Parses a list of the API server.
pub fn list(body: Vec<u8>) {
    if let Ok(list) = ListResponse::parse_blocking(body) {
        list.items().for_each(drop);
    }
}

/// Parses the body of an error response.
pub fn error_response(code: u16, body: &[u8]) {
    if let Ok(code) = http::StatusCode::from_u16(code) {
        request::error_from_response(code, &Default::default(), body);
    }
}

/// Handles the lines of a watch of pods, with the state of an earlier process in this directory.
pub fn pod_watch<'a>(dir: &Path, lines: impl Iterator<Item = &'a [u8]>) {
    let log: KeyedLog<PodRecordKey> = KeyedLog::new(dir.join("api.json"));
    let (errors, _) = watch::channel(Vec::new());
    let stores = PodStores::new("fuzzing");
    let mut handler = PodHandler::new(stores, ApiHealth::new(), log, errors, "node-1");
    for line in lines {
        // An error ends the watch.
        let _ = handle_line(line, &mut handler);
    }
}

/// Loads the state files of the service in this directory.
pub fn state_files(dir: &Path) {
    let _ = ImmediateWriter::new(dir.join("file.json"), Default::default()).load("file");
    KeyedLog::<ObjectId>::new(dir.join("objects.json")).load(|_, _: &ObjectRecord| true);
    pod_watch(dir, std::iter::empty());
    let effect = "fuzzing";
    let _ = StateFile::<PersistedCluster>::new(dir.join("cluster.json"), VERSION).restore(effect);
    let _ = StateFile::<PersistedNode>::new(dir.join("node.json"), VERSION).restore(effect);
    let _ = StateFile::<PersistedServices>::new(dir.join("services.json"), VERSION).restore(effect);
    let _ = StateFile::<PersistedTokens>::new(dir.join("tokens.json"), VERSION).restore(effect);
}
