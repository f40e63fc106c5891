//! The configuration file and its drop-ins.

use std::path::{Path, PathBuf};

use polylet_kit::config;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::FlagError;

/// Fields that name files, relative to the file that they stand in.
const PATHS: [&str; 6] = [
    "/staticPodPath",
    "/authentication/x509/clientCAFile",
    "/tlsCertFile",
    "/tlsPrivateKeyFile",
    "/resolvConf",
    "/podLogsDir",
];

/// The two documents, as far as files have said them.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) kubelet: Map<String, Value>,
    pub(super) polylet: Map<String, Value>,
}

impl Documents {
    /// Merges a file over what earlier ones said: maps into maps, all else replaces.
    pub(super) fn merge(&mut self, path: &Path) -> Result<(), FlagError> {
        // By itself first: what is wrong is named with the file that it stands in.
        config::load(path)?;
        let text = std::fs::read_to_string(path).map_err(|source| FlagError::Read {
            path: path.to_owned(),
            source,
        })?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let read = Value::deserialize(document).map_err(|error| FlagError::Document {
                path: path.to_owned(),
                why: error.to_string(),
            })?;
            let mut document = read;
            if document["kind"] == "PolyletConfiguration" {
                merge(&mut self.polylet, document);
            } else {
                for pointer in PATHS {
                    if let Some(Value::String(named)) = document.pointer_mut(pointer) {
                        absolute(named, path);
                    }
                }
                merge(&mut self.kubelet, document);
            }
        }
        Ok(())
    }
}

fn absolute(named: &mut String, file: &Path) {
    if !named.is_empty()
        && !named.starts_with('/')
        && let Some(directory) = file.parent()
    {
        *named = directory.join(&*named).to_string_lossy().into_owned();
    }
}

/// As a JSON merge patch (RFC 7396) does.
pub(super) fn merge(into: &mut Map<String, Value>, over: Value) {
    let Value::Object(over) = over else {
        return;
    };
    for (name, value) in over {
        match (into.get_mut(&name), value) {
            (_, Value::Null) => {
                into.remove(&name);
            }
            (Some(Value::Object(fields)), value @ Value::Object(_)) => merge(fields, value),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// Files `*.conf` of a directory and those below it, by name.
pub(super) fn drop_ins(directory: Option<&Path>) -> Result<Vec<PathBuf>, FlagError> {
    let Some(directory) = directory else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    collect(directory, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> Result<(), FlagError> {
    let unread = |source| FlagError::Read {
        path: directory.to_owned(),
        source,
    };
    for entry in std::fs::read_dir(directory).map_err(unread)? {
        let path = entry.map_err(unread)?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "conf")
        {
            found.push(path);
        }
    }
    Ok(())
}
