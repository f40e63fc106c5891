//! A small file beside a pod's volumes that tells a later process what the directories do not:
//! whose they are, and which paths of the node belong to them. Losing it costs nothing but names,
//! so it is not synced.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use polylet_kit::kept;
use serde::{Deserialize, Serialize};

use super::{VolumeError, dir};
use crate::core::layout::{self, Layout};
use crate::core::spec::PodName;

const VERSION: u32 = 1;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct Note {
    namespace: String,
    name: String,
    #[serde(default)]
    host_paths: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct Envelope<'a> {
    version: u32,
    data: &'a Note,
}

/// What was noted of a pod; just its uid when nothing was, or nothing that can be read.
pub fn load(layout: &Layout, uid: &str) -> (PodName, BTreeMap<String, String>) {
    let noted: Option<Note> = kept::load(&layout.note(uid), VERSION).unwrap_or_else(|error| {
        tracing::warn!(
            uid,
            error = polylet_kit::report(&error),
            "a pod's note is not read"
        );
        None
    });
    let note = noted.unwrap_or_default();
    let pod = PodName {
        uid: uid.to_owned(),
        namespace: note.namespace,
        name: note.name,
    };
    (pod, note.host_paths)
}

/// Notes a pod.
pub fn save(
    layout: &Layout,
    pod: &PodName,
    host_paths: BTreeMap<String, String>,
) -> Result<(), VolumeError> {
    let path = layout.note(&pod.uid);
    let note = Note {
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        host_paths,
    };
    if kept::load::<Note>(&path, VERSION).is_ok_and(|known| known.as_ref() == Some(&note)) {
        return Ok(());
    }
    let at = layout.pod(&pod.uid);
    dir::make_all(dir::open(&at)?, &at, &["plugins", layout::OWN])?;
    // Plain strings: nothing in it can fail to be written.
    let text = serde_json::to_vec(&Envelope {
        version: VERSION,
        data: &note,
    })
    .unwrap_or_default();
    let aside = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let open = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside);
    let written = open.and_then(|mut file| file.write_all(&text));
    written
        .and_then(|()| fs::rename(&aside, &path))
        .map_err(|source| VolumeError::Write { path, source })
}
