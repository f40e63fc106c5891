//! The configuration file and its drop-ins.

use std::path::{Path, PathBuf};

use polylet_kit::config;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::FlagError;

/// Fields with paths, which are relative to the configuration file.
const PATH_FIELDS: [&str; 6] = [
    "/staticPodPath",
    "/authentication/x509/clientCAFile",
    "/tlsCertFile",
    "/tlsPrivateKeyFile",
    "/resolvConf",
    "/podLogsDir",
];

/// The two documents, merged over all files.
#[derive(Debug, Default)]
pub(super) struct Documents {
    pub(super) kubelet: Map<String, Value>,
    pub(super) polylet: Map<String, Value>,
}

impl Documents {
    /// Merges a file over the earlier ones: objects are merged, other values replaced.
    pub(super) fn merge(&mut self, path: &Path) -> Result<(), FlagError> {
        // Validated by itself, so that errors name the file.
        config::load(path)?;
        let text = std::fs::read_to_string(path).map_err(|source| FlagError::Read {
            path: path.to_owned(),
            source,
        })?;
        for document in serde_yaml_ng::Deserializer::from_str(&text) {
            let read = Value::deserialize(document).map_err(|error| FlagError::Document {
                path: path.to_owned(),
                error: error.to_string(),
            })?;
            let mut document = read;
            let kind = document.get("kind").and_then(Value::as_str);
            if kind == Some("PolyletConfiguration") {
                merge_patch(&mut self.polylet, document);
            } else {
                for pointer in PATH_FIELDS {
                    if let Some(Value::String(value)) = document.pointer_mut(pointer) {
                        make_absolute(value, path);
                    }
                }
                merge_patch(&mut self.kubelet, document);
            }
        }
        Ok(())
    }
}

fn make_absolute(path: &mut String, file: &Path) {
    if !path.is_empty()
        && !path.starts_with('/')
        && let Some(directory) = file.parent()
    {
        *path = directory.join(&*path).to_string_lossy().into_owned();
    }
}

/// Applies a JSON merge patch (RFC 7396).
pub(super) fn merge_patch(into: &mut Map<String, Value>, over: Value) {
    let Value::Object(over) = over else {
        return;
    };
    for (name, value) in over {
        match (into.get_mut(&name), value) {
            (_, Value::Null) => {
                into.remove(&name);
            }
            (Some(Value::Object(fields)), value @ Value::Object(_)) => merge_patch(fields, value),
            (_, value) => {
                into.insert(name, value);
            }
        }
    }
}

/// The files `*.conf` in a directory and its subdirectories, sorted by path.
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
    let read_error = |source| FlagError::Read {
        path: directory.to_owned(),
        source,
    };
    for entry in std::fs::read_dir(directory).map_err(read_error)? {
        let path = entry.map_err(read_error)?.path();
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
