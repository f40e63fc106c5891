//! Stops and hooks under way, kept under the run directory: a grace goes on over a restart of this
//! process, and a hook that was not heard to its end is run again. Containers do not outlive the
//! node, so neither need these files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::core::hooks::{Lifecycle, PostStart, Stop};
use crate::core::reset::Reset;
use crate::journal::JournalError;

#[derive(Default, Serialize, Deserialize)]
struct Kept {
    #[serde(default)]
    stops: BTreeMap<String, KeptStop>,
    /// Containers whose postStart hook is not over.
    #[serde(default)]
    starts: Vec<String>,
    #[serde(default)]
    resets: BTreeMap<String, KeptReset>,
}

#[derive(Serialize, Deserialize)]
struct KeptReset {
    attempt: u32,
    step: u32,
    not_before: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct KeptStop {
    began: Timestamp,
    grace: u32,
    until: Timestamp,
    hooked: bool,
    again: bool,
}

/// The folder of what is under way. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Underway {
    folder: PathBuf,
}

impl Underway {
    /// Opens the folder and reads all of it. What makes no sense is no loss: the stop then begins
    /// anew.
    pub(crate) fn open(
        run_dir: &Path,
    ) -> Result<(Self, BTreeMap<String, Lifecycle>), JournalError> {
        let folder = run_dir.join("stops");
        let failed = |source| JournalError::Folder {
            path: folder.clone(),
            source,
        };
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let mut known = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            let kept = std::fs::read(entry.path()).unwrap_or_default();
            match serde_json::from_slice::<Kept>(&kept) {
                Ok(kept) => drop(known.insert(uid.to_owned(), kept.into())),
                Err(error) => tracing::warn!(k8s.pod.uid = uid, %error, "stops not read"),
            }
        }
        Ok((Underway { folder }, known))
    }

    /// Writes what is under way with a pod. One small file on the run directory's file system,
    /// before anything is done.
    pub(crate) fn save(&self, uid: &str, lifecycle: &Lifecycle) {
        let path = self.folder.join(format!("{uid}.json"));
        let done = if lifecycle.is_empty() {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            write(&path, &Kept::from(lifecycle))
        };
        if let Err(error) = done {
            tracing::warn!(k8s.pod.uid = uid, %error, "stops not written");
        }
    }

    /// Forgets a pod.
    pub(crate) fn forget(&self, uid: &str) {
        self.save(uid, &Lifecycle::default());
    }
}

fn write(path: &Path, kept: &Kept) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    std::fs::write(&aside, serde_json::to_vec(kept)?)?;
    std::fs::rename(&aside, path)
}

impl From<&Lifecycle> for Kept {
    fn from(of: &Lifecycle) -> Self {
        let stop = |stop: &Stop| KeptStop {
            began: stop.began,
            grace: stop.grace,
            until: stop.until,
            hooked: stop.hooked,
            again: stop.again,
        };
        let reset = |reset: &Reset| KeptReset {
            attempt: reset.attempt,
            step: reset.step,
            not_before: reset.not_before,
        };
        Kept {
            stops: of
                .stops
                .iter()
                .map(|(id, s)| (id.clone(), stop(s)))
                .collect(),
            starts: of.starts.keys().cloned().collect(),
            resets: of
                .resets
                .iter()
                .map(|(name, r)| (name.clone(), reset(r)))
                .collect(),
        }
    }
}

impl From<Kept> for Lifecycle {
    fn from(kept: Kept) -> Self {
        let stop = |stop: KeptStop| Stop {
            began: stop.began,
            grace: stop.grace,
            until: stop.until,
            hooked: stop.hooked,
            again: stop.again,
        };
        let reset = |reset: KeptReset| Reset {
            attempt: reset.attempt,
            step: reset.step,
            not_before: reset.not_before,
        };
        Lifecycle {
            stops: kept
                .stops
                .into_iter()
                .map(|(id, s)| (id, stop(s)))
                .collect(),
            // A hook that failed is run again: its words are not kept.
            starts: kept
                .starts
                .into_iter()
                .map(|id| (id, PostStart::Due))
                .collect(),
            resets: kept
                .resets
                .into_iter()
                .map(|(name, r)| (name, reset(r)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let (underway, known) = Underway::open(folder.path()).unwrap();
        assert!(known.is_empty());
        let at = Timestamp::from_second(1_800_000_000).unwrap();
        let stop = Stop {
            began: at,
            grace: 30,
            until: at,
            hooked: true,
            again: false,
        };
        let mut lifecycle = Lifecycle::default();
        lifecycle.stops.insert("c1".into(), stop);
        lifecycle.starts.insert("c2".into(), PostStart::Due);
        let reset = Reset {
            attempt: 3,
            step: 2,
            not_before: Some(at),
        };
        lifecycle.resets.insert("a".into(), reset);
        underway.save("u1", &lifecycle);
        std::fs::write(folder.path().join("stops/u2.json"), "{").unwrap();
        let (underway, known) = Underway::open(folder.path()).unwrap();
        assert_eq!(known, BTreeMap::from([("u1".to_owned(), lifecycle)]));
        underway.forget("u1");
        assert!(Underway::open(folder.path()).unwrap().1.is_empty());
    }
}
