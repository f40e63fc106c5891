//! What is kept of pods on disk: promises under the state directory, intents under
//! the run directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use polylet_kit::kept::{self, KeptError};
use polylet_model::{Allocation, Amounts};
use serde::{Deserialize, Serialize};

use crate::core::room::Demand;
use crate::core::view::{Journal, Terminal};

const VERSION: u32 = 1;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file of it cannot be read or written.
    #[error("journal of pod {uid}")]
    Kept {
        /// The pod.
        uid: String,
        /// What is wrong.
        #[source]
        source: KeptError,
    },
    /// A folder cannot be made, listed or changed.
    #[error("folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct Kept {
    acknowledged_at: Option<Timestamp>,
    #[serde(default)]
    demand: Option<Demand>,
    #[serde(default)]
    allocated: Option<Allocation>,
    #[serde(default)]
    in_cgroup: Option<Allocation>,
    #[serde(default)]
    held: BTreeMap<String, Amounts>,
    #[serde(default)]
    resize_generation: i64,
    terminal: Option<KeptTerminal>,
    #[serde(default)]
    torn_down: bool,
}

#[derive(Serialize, Deserialize)]
struct KeptTerminal {
    reason: String,
    message: String,
    phase: String,
    disruption_target: bool,
    decided_at: Timestamp,
    grace: Option<u32>,
}

/// The folders of the journal. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Book {
    pods: PathBuf,
    intents: PathBuf,
}

impl Book {
    /// Opens the journal and reads everything in it. A broken entry is set aside:
    /// the pod is then judged anew.
    pub fn open(
        state_dir: &Path,
        run_dir: &Path,
    ) -> Result<(Self, BTreeMap<String, Journal>), JournalError> {
        let book = Book {
            pods: state_dir.join("pods"),
            intents: run_dir.join("intents"),
        };
        for folder in [&book.pods, &book.intents] {
            std::fs::create_dir_all(folder).map_err(|source| JournalError::Folder {
                path: folder.clone(),
                source,
            })?;
        }
        let mut entries = BTreeMap::new();
        for uid in names(&book.pods, ".json")? {
            let path = book.pod(&uid);
            match kept::load::<Kept>(&path, VERSION) {
                Ok(Some(kept)) => {
                    entries.insert(uid, kept.into());
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(
                        k8s.pod.uid = uid,
                        error = polylet_kit::report(&error),
                        "journal entry set aside"
                    );
                    kept::set_aside(&path).map_err(|source| JournalError::Kept { uid, source })?;
                }
            }
        }
        Ok((book, entries))
    }

    fn pod(&self, uid: &str) -> PathBuf {
        self.pods.join(format!("{uid}.json"))
    }

    /// Writes a pod's entry, so that it outlives a crash of the node.
    pub fn save(&self, uid: &str, journal: &Journal) -> Result<(), JournalError> {
        let kept = Kept::from(journal);
        kept::save(&self.pod(uid), VERSION, &kept).map_err(|source| JournalError::Kept {
            uid: uid.to_owned(),
            source,
        })
    }

    /// Forgets a pod.
    pub fn forget(&self, uid: &str) {
        for path in [self.pod(uid), self.intents.join(uid)] {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "journal entry not removed");
            }
        }
    }

    /// Says that a sandbox of this number is about to be asked for. Outlives the
    /// process and not the node: a call in flight does neither.
    pub fn intend(&self, uid: &str, attempt: u32) {
        if let Err(error) = std::fs::write(self.intents.join(uid), attempt.to_string()) {
            tracing::warn!(k8s.pod.uid = uid, %error, "intent not written");
        }
    }

    /// The call has come to a known end.
    pub fn settle(&self, uid: &str) {
        let _ = std::fs::remove_file(self.intents.join(uid));
    }

    /// Sandbox numbers that a former life asked for without hearing the end.
    pub fn intents(&self) -> Result<BTreeMap<String, u32>, JournalError> {
        let read = |uid: String| {
            let attempt = std::fs::read_to_string(self.intents.join(&uid))
                .ok()?
                .trim()
                .parse()
                .ok()?;
            Some((uid, attempt))
        };
        Ok(names(&self.intents, "")?
            .into_iter()
            .filter_map(read)
            .collect())
    }
}

/// Names of files with this ending, without it.
fn names(folder: &Path, ending: &str) -> Result<Vec<String>, JournalError> {
    let failed = |source| JournalError::Folder {
        path: folder.to_owned(),
        source,
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if let Some(name) = name.to_str().and_then(|n| n.strip_suffix(ending)) {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

impl From<&Journal> for Kept {
    fn from(journal: &Journal) -> Self {
        let terminal = journal.terminal.as_ref().map(|t| KeptTerminal {
            reason: t.reason.clone(),
            message: t.message.clone(),
            phase: t.phase.clone(),
            disruption_target: t.disruption_target,
            decided_at: t.decided_at,
            grace: t.grace,
        });
        Kept {
            acknowledged_at: journal.acknowledged_at,
            demand: journal.demand.as_deref().cloned(),
            allocated: journal.allocated.as_deref().cloned(),
            in_cgroup: journal.in_cgroup.as_deref().cloned(),
            held: journal.held.clone(),
            resize_generation: journal.resize_generation,
            terminal,
            torn_down: journal.torn_down,
        }
    }
}

impl From<Kept> for Journal {
    fn from(kept: Kept) -> Self {
        let terminal = kept.terminal.map(|t| Terminal {
            reason: t.reason,
            message: t.message,
            phase: t.phase,
            disruption_target: t.disruption_target,
            decided_at: t.decided_at,
            grace: t.grace,
        });
        Journal {
            acknowledged_at: kept.acknowledged_at,
            demand: kept.demand.map(Arc::new),
            allocated: kept.allocated.map(Arc::new),
            in_cgroup: kept.in_cgroup.map(Arc::new),
            held: kept.held,
            resize_generation: kept.resize_generation,
            terminal,
            torn_down: kept.torn_down,
        }
    }
}
