//! The payload of volumes made of files: content and mode of each file, from its sources.

use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

use super::blocked::Blocked;
use super::certificates::{CertificateSource, IssuedCertificate};
use super::cluster_trust_bundle;
use super::files::{VolumeFile, VolumeFiles};
use super::lookup::Lookup;
use super::reference_key::ObjectKind;
use super::references::{ObjectState, ReferencedObject};
use super::spec::{FileSource, FilesSpec, ObjectSource};

const MAX_PATH: usize = 4096;
const MAX_NAME: usize = 255;

/// The files of a volume, or why they are not complete.
pub fn files(spec: &FilesSpec, lookup: &impl Lookup) -> Result<VolumeFiles, Blocked> {
    let mut content = BTreeMap::new();
    let mut imminent = None;
    for source in &spec.sources {
        match source {
            FileSource::Static(files) => {
                for (path, file) in files
                    .as_ref()
                    .map_err(|error| Blocked::Failed(error.clone()))?
                {
                    add_file(&mut content, path, file.clone())?;
                }
            }
            FileSource::Token(source) => {
                let token = match lookup.token(&source.key) {
                    Ok(issued) => issued.token,
                    // What blocks another source counts more.
                    Err(blocked @ Blocked::Imminent(_)) => {
                        imminent = Some(blocked);
                        continue;
                    }
                    Err(blocked) => return Err(blocked),
                };
                let file = VolumeFile {
                    bytes: token,
                    mode: source.mode,
                    uid: source.uid,
                };
                add_file(&mut content, &source.path, file)?;
            }
            FileSource::TrustBundle(source) => {
                let file = VolumeFile {
                    bytes: cluster_trust_bundle::anchors(
                        source,
                        lookup.object(&source.key),
                        lookup.node_name(),
                    )?,
                    mode: source.mode,
                    uid: source.uid,
                };
                add_file(&mut content, &source.path, file)?;
            }
            FileSource::Certificate(source) => {
                add_certificate(source, &lookup.certificate(&source.key)?, &mut content)?;
            }
            FileSource::Object(source) => match lookup.object(&source.key) {
                ObjectState::Present(object) => add_object(source, object, &mut content)?,
                ObjectState::Absent if source.optional => {}
                ObjectState::Absent => return Err(Blocked::Missing(source.key.not_found())),
                ObjectState::Unknown(error) => return Err(Blocked::Missing(error.clone())),
                ObjectState::NotSynced => return Err(Blocked::Waiting(source.key.not_synced())),
                ObjectState::Invalid(error) => return Err(Blocked::Failed(error.clone())),
            },
        }
    }
    check_no_file_is_a_directory(&content)?;
    if let Some(blocked) = imminent {
        return Err(blocked);
    }
    if spec.gid.is_some() {
        // The group may read, as upstream.
        content.values_mut().for_each(|file| file.mode |= 0o440);
    }
    Ok(VolumeFiles {
        medium: spec.medium,
        gid: spec.gid,
        content: Arc::new(content),
    })
}

/// Key and certificates in one file, or in two; an empty path means no file.
fn add_certificate(
    source: &CertificateSource,
    issued: &IssuedCertificate,
    content: &mut BTreeMap<String, VolumeFile>,
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
        let file = VolumeFile {
            bytes,
            mode: source.mode,
            uid: source.uid,
        };
        add_file(content, path, file)?;
    }
    Ok(())
}

fn add_object(
    source: &ObjectSource,
    object: &ReferencedObject,
    content: &mut BTreeMap<String, VolumeFile>,
) -> Result<(), Blocked> {
    if source.items.is_empty() {
        for (key, bytes) in &object.data {
            add_file(
                content,
                key,
                VolumeFile {
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
            return Err(Blocked::Failed(missing_key(source.key.kind, &item.key)));
        };
        let mode = item.mode.unwrap_or(source.mode);
        add_file(
            content,
            &item.path,
            VolumeFile {
                bytes: bytes.clone(),
                mode,
                uid: None,
            },
        )?;
    }
    Ok(())
}

fn missing_key(kind: ObjectKind, key: &str) -> String {
    match kind {
        ObjectKind::ConfigMap => format!("configmap references non-existent config key: {key}"),
        _ => format!("references non-existent secret key: {key}"),
    }
}

fn add_file(
    content: &mut BTreeMap<String, VolumeFile>,
    path: &str,
    file: VolumeFile,
) -> Result<(), Blocked> {
    let path =
        clean(path).map_err(|error| Blocked::Failed(format!("invalid path {path:?}: {error}")))?;
    content.insert(path, file);
    Ok(())
}

/// The path without empty and `.` elements; an error if it could leave the volume or collide with
/// the names of the atomic writer.
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

fn parent(path: &str) -> Option<&str> {
    path.rsplit_once('/').map(|(parent, _)| parent)
}

fn check_no_file_is_a_directory(content: &BTreeMap<String, VolumeFile>) -> Result<(), Blocked> {
    for path in content.keys() {
        for parent in iter::successors(parent(path), |path| parent(path)) {
            if content.contains_key(parent) {
                let message = format!("{parent:?} is a file and, for {path:?}, a directory");
                return Err(Blocked::Failed(message));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
