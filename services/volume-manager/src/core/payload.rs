//! From sources to files: which file has what content and mode, or what it waits for.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::certificates::{CertificateKey, CertificateSource, Issued};
use super::csi::Registered;
use super::objects::{Object, ObjectKey, ObjectKind, ObjectState};
use super::place::Place;
use super::spec::{File, Files, FilesSpec, ObjectSource, Source};
use super::tokens::{self, TokenKey};
use super::trust;

/// Why the files are not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// Something has yet to be heard; what.
    Waiting(String),
    /// This node has asked for it itself, and will have it in a moment; what.
    Coming(String),
    /// Something is not there, and may come; what.
    Missing(String),
    /// The same: what cannot be done without it, in upstream's words, and why.
    Lacking(&'static str, String),
    /// It is not attached to this node; why.
    Unattached(String),
    /// The same, and its driver can attach no more to this node.
    Exhausted {
        /// The driver.
        driver: String,
        /// Why.
        why: String,
    },
    /// It is not known yet what the volume is; why.
    Unresolved(String),
    /// Something is wrong; what.
    Failed(String),
    /// It is not to be set up at all as things are: what cannot be done, in upstream's words, and
    /// why.
    Refused(&'static str, String),
}

const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// What is known of that which volumes are made of.
pub trait Known {
    /// An object.
    fn object(&self, key: &ObjectKey) -> &ObjectState;

    /// A token.
    fn token(&self, key: &TokenKey) -> Result<tokens::Issued, Blocked>;

    /// A certificate and its key.
    fn certificate(&self, key: &CertificateKey) -> Result<Issued, Blocked>;

    /// A driver on this node.
    fn registered(&self, driver: &str) -> Option<&Registered>;

    /// This node's name.
    fn node(&self) -> &str;

    /// Whether another pod of this node has a persistent volume, or is about to.
    fn is_elsewhere(&self, uid: &str, persistent: &str) -> bool;

    /// What the cluster says of this node, once it has been heard.
    fn place(&self) -> Option<&Place>;
}

/// The files of a volume, from what is known.
pub fn files(spec: &FilesSpec, known: &impl Known) -> Result<Files, Blocked> {
    let mut content = BTreeMap::new();
    let mut coming = None;
    for source in &spec.sources {
        match source {
            Source::Ready(files) => {
                for (path, file) in files.as_ref().map_err(|why| Blocked::Failed(why.clone()))? {
                    put(&mut content, path, file.clone())?;
                }
            }
            Source::Token(source) => {
                let token = match known.token(&source.key) {
                    Ok(issued) => issued.token,
                    // Whether the rest can be had counts more.
                    Err(why @ Blocked::Coming(_)) => {
                        coming = Some(why);
                        continue;
                    }
                    Err(why) => return Err(why),
                };
                let file = File {
                    bytes: token,
                    mode: source.mode,
                    uid: source.uid,
                };
                put(&mut content, &source.path, file)?;
            }
            Source::Trust(source) => {
                let file = File {
                    bytes: trust::anchors(source, known.object(&source.key), known.node())?,
                    mode: source.mode,
                    uid: source.uid,
                };
                put(&mut content, &source.path, file)?;
            }
            Source::Certificate(source) => {
                of_certificate(source, &known.certificate(&source.key)?, &mut content)?;
            }
            Source::Object(source) => match known.object(&source.key) {
                ObjectState::Present(object) => of_object(source, object, &mut content)?,
                ObjectState::Absent if source.optional => {}
                ObjectState::Absent => return Err(Blocked::Missing(not_found(&source.key))),
                ObjectState::Unknown(why) => return Err(Blocked::Missing(why.clone())),
                ObjectState::Unheard => return Err(Blocked::Waiting(unheard(&source.key))),
                ObjectState::Broken(why) => return Err(Blocked::Failed(why.clone())),
            },
        }
    }
    no_file_is_a_directory(&content)?;
    if let Some(why) = coming {
        return Err(why);
    }
    if spec.gid.is_some() {
        // Upstream's widening for a group that may read.
        content.values_mut().for_each(|file| file.mode |= 0o440);
    }
    Ok(Files {
        medium: spec.medium,
        gid: spec.gid,
        content: Arc::new(content),
    })
}

/// Key and certificate in one file, or in two; an empty path asks for none.
fn of_certificate(
    source: &CertificateSource,
    issued: &Issued,
    content: &mut BTreeMap<String, File>,
) -> Result<(), Blocked> {
    let both = [&*issued.key.0, &*issued.chain.0].concat();
    for (path, bytes) in [
        (&source.bundle_path, both.into()),
        (&source.key_path, issued.key.clone()),
        (&source.chain_path, issued.chain.clone()),
    ] {
        if path.is_empty() {
            continue;
        }
        let file = File {
            bytes,
            mode: source.mode,
            uid: source.uid,
        };
        put(content, path, file)?;
    }
    Ok(())
}

pub(super) fn not_found(key: &ObjectKey) -> String {
    format!("{} \"{}\" not found", key.kind.word(), key.name)
}

pub(super) fn unheard(key: &ObjectKey) -> String {
    format!("waiting to hear of {key}")
}

fn of_object(
    source: &ObjectSource,
    object: &Object,
    content: &mut BTreeMap<String, File>,
) -> Result<(), Blocked> {
    if source.items.is_empty() {
        for (key, bytes) in &object.data {
            put(
                content,
                key,
                File {
                    bytes: bytes.clone(),
                    mode: source.mode,
                    uid: None,
                },
            )?;
        }
        return Ok(());
    }
    for item in &source.items {
        let Some(bytes) = object.data.get(&item.key) else {
            if source.optional {
                continue;
            }
            return Err(Blocked::Failed(no_key(source.key.kind, &item.key)));
        };
        let mode = item.mode.unwrap_or(source.mode);
        put(
            content,
            &item.path,
            File {
                bytes: bytes.clone(),
                mode,
                uid: None,
            },
        )?;
    }
    Ok(())
}

fn no_key(kind: ObjectKind, key: &str) -> String {
    match kind {
        ObjectKind::ConfigMap => format!("configmap references non-existent config key: {key}"),
        _ => format!("references non-existent secret key: {key}"),
    }
}

fn put(content: &mut BTreeMap<String, File>, path: &str, file: File) -> Result<(), Blocked> {
    let path =
        clean(path).map_err(|why| Blocked::Failed(format!("invalid path {path:?}: {why}")))?;
    content.insert(path, file);
    Ok(())
}

/// The path without empty and `.` elements; refused when it could leave the volume or meet the
/// writer's own names.
pub fn clean(path: &str) -> Result<String, &'static str> {
    if path.starts_with('/') {
        return Err("must be relative");
    }
    if path.len() > MAX_PATH {
        return Err("must be at most 4096 bytes");
    }
    if path.contains('\0') {
        return Err("must not contain a zero byte");
    }
    let parts: Vec<_> = path
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    if parts.contains(&"..") {
        return Err("must not contain '..'");
    }
    if parts.iter().any(|part| part.len() > MAX_NAME) {
        return Err("no element may be longer than 255 bytes");
    }
    match parts.first() {
        None => Err("must not be empty"),
        Some(first) if first.starts_with("..") => Err("must not start with '..'"),
        Some(_) => Ok(parts.join("/")),
    }
}

fn no_file_is_a_directory(content: &BTreeMap<String, File>) -> Result<(), Blocked> {
    for path in content.keys() {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        for parent in parents {
            if content.contains_key(parent) {
                let why = format!("{parent:?} is a file and, for {path:?}, a directory");
                return Err(Blocked::Failed(why));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
