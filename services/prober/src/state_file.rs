//! The results on disk, so that a restart changes none.

use std::borrow::Cow;
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::state_file::{StateFile, StateFileError};
use polylet_model::probe::ProbeKind;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::core::types::{ProbeId, ProbeOutcome, ProbeResult, ResultChanges, Results};

/// The file in the run directory.
pub(crate) const FILE_NAME: &str = "probe-results.json";
/// Version of the file's format.
pub(crate) const VERSION: u32 = 1;

/// The pause after a write, in durations of the write: a tenth of the time at most is spent writing,
const PAUSE_FACTOR: u32 = 9;
/// but changes are published once they are saved, and wait no longer than this for it while writes are
/// quick. One that has just missed a write waits for it, for the pause, and for its own.
const MAX_DELAY: Duration = Duration::from_millis(100);

/// All results, and the file that has them.
pub(crate) struct ResultsFile {
    file: StateFile<Vec<StoredResult<'static>>>,
    /// Includes changes that could not be saved.
    results: Results,
    next_write: Instant,
}

/// A result in the file. Only what is read is owned.
#[derive(Debug, Serialize, Deserialize)]
struct StoredResult<'a> {
    pod: Cow<'a, str>,
    container: Cow<'a, str>,
    kind: StoredKind,
    success: bool,
    run_length: u32,
    message: Cow<'a, str>,
    since: Option<Timestamp>,
    traceparent: Cow<'a, str>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
enum StoredKind {
    Startup,
    Liveness,
    Readiness,
}

impl ResultsFile {
    /// Opens the file in the run directory and loads its results. A corrupt file is set aside: its
    /// containers are probed again.
    ///
    /// # Errors
    /// The file cannot be read, or a newer build wrote it.
    pub(crate) fn open(run_dir: &Path) -> Result<Self, StateFileError> {
        let file: StateFile<Vec<StoredResult>> = StateFile::new(run_dir.join(FILE_NAME), VERSION);
        // Containers do not outlive the node, so the file need not either.
        let file = file.without_sync();
        let stored = file.restore("containers are probed as if they had just started")?;
        let stored = stored.unwrap_or_default().into_iter();
        Ok(ResultsFile {
            file,
            results: stored.map(from_stored).collect(),
            next_write: Instant::now(),
        })
    }

    /// The loaded results with all changes since.
    pub(crate) fn results(&self) -> &Results {
        &self.results
    }

    /// When the next write may start.
    pub(crate) fn next_write(&self) -> Instant {
        self.next_write
    }

    /// Saves all results with these changes. Blocks. After a failure, the next call saves them.
    pub(crate) fn save(&mut self, changes: &ResultChanges) -> Result<(), StateFileError> {
        let started = Instant::now();
        changes.apply_to(&mut self.results);
        let saved = self
            .file
            .save(&self.results.iter().map(to_stored).collect());
        let ended = Instant::now();
        self.next_write = ended + pause_after(ended - started);
        saved
    }
}

/// The pause after a write that took this long: of a slow write as long, so that half of the time at most is
/// spent writing.
fn pause_after(took: Duration) -> Duration {
    let longest = MAX_DELAY.saturating_sub(took.saturating_mul(2));
    took.saturating_mul(PAUSE_FACTOR).min(longest.max(took))
}

fn to_stored<'a>((id, result): (&'a ProbeId, &'a ProbeResult)) -> StoredResult<'a> {
    StoredResult {
        pod: id.pod.as_str().into(),
        container: id.container.as_str().into(),
        kind: match id.kind {
            ProbeKind::Startup => StoredKind::Startup,
            ProbeKind::Liveness => StoredKind::Liveness,
            ProbeKind::Readiness => StoredKind::Readiness,
        },
        success: result.outcome == ProbeOutcome::Success,
        run_length: result.run_length,
        message: result.message.as_str().into(),
        since: result.since,
        traceparent: result.traceparent.as_str().into(),
    }
}

fn from_stored(stored: StoredResult) -> (ProbeId, ProbeResult) {
    let id = ProbeId {
        pod: stored.pod.into_owned().into(),
        container: stored.container.into_owned().into(),
        kind: match stored.kind {
            StoredKind::Startup => ProbeKind::Startup,
            StoredKind::Liveness => ProbeKind::Liveness,
            StoredKind::Readiness => ProbeKind::Readiness,
        },
    };
    let result = ProbeResult {
        outcome: if stored.success {
            ProbeOutcome::Success
        } else {
            ProbeOutcome::Failure
        },
        run_length: stored.run_length,
        message: stored.message.into_owned(),
        since: stored.since,
        traceparent: stored.traceparent.into_owned(),
    };
    (id, result)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::core::test_support::{probe_id, result};

    fn changes(of: &[(&str, Option<u32>)]) -> ResultChanges {
        let mut changes = ResultChanges::default();
        for (container, run_length) in of {
            let id = probe_id(container, ProbeKind::Readiness);
            changes.add(id, run_length.map(result));
        }
        changes
    }

    /// Containers and run lengths of what a restart restores.
    fn restored(dir: &Path) -> Vec<(String, u32)> {
        let file = ResultsFile::open(dir).unwrap();
        let results = file.results().iter();
        let results = results.map(|(id, result)| (id.container.to_string(), result.run_length));
        results.collect()
    }

    #[test]
    fn all_changes_so_far_are_restored() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = ResultsFile::open(dir.path()).unwrap();
        let owned = |of: &[(&str, u32)]| {
            let of = of.iter();
            of.map(|(id, n)| ((*id).to_owned(), *n)).collect::<Vec<_>>()
        };
        for (step, expected) in [
            (
                changes(&[("a", Some(1)), ("b", Some(1))]),
                owned(&[("a", 1), ("b", 1)]),
            ),
            (changes(&[("b", Some(2))]), owned(&[("a", 1), ("b", 2)])),
            (
                changes(&[("a", None), ("c", Some(3))]),
                owned(&[("b", 2), ("c", 3)]),
            ),
        ] {
            file.save(&step).unwrap();
            assert_eq!(restored(dir.path()), expected);
        }
        let mut reopened = ResultsFile::open(dir.path()).unwrap();
        reopened.save(&changes(&[("c", None)])).unwrap();
        assert_eq!(restored(dir.path()), owned(&[("b", 2)]));
    }

    #[test]
    fn changes_that_could_not_be_saved_are_saved_with_the_next_ones() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("run");
        fs::create_dir(&run_dir).unwrap();
        let mut file = ResultsFile::open(&run_dir).unwrap();
        fs::remove_dir(&run_dir).unwrap();
        assert!(file.save(&changes(&[("a", Some(1))])).is_err());
        fs::create_dir(&run_dir).unwrap();
        file.save(&changes(&[("b", Some(1))])).unwrap();
        assert_eq!(
            restored(&run_dir),
            [("a".to_owned(), 1), ("b".to_owned(), 1)]
        );
    }

    #[test]
    fn the_format_of_the_file_is_unchanged() {
        let stored = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/testdata/formats/probe-results.v1.json"
        );
        let text = fs::read_to_string(stored).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE_NAME);
        fs::write(&path, &text).unwrap();
        let mut file = ResultsFile::open(dir.path()).unwrap();
        file.save(&ResultChanges::default()).unwrap();
        assert_eq!(fs::read_to_string(path).unwrap().trim(), text.trim());
    }

    #[test]
    fn writes_take_a_tenth_of_the_time_unless_changes_would_wait_for_long() {
        let ms = Duration::from_millis;
        for (took, pause) in [
            (0, 0),
            (1, 9),
            (5, 45),
            (9, 81),
            (10, 80),
            (30, 40),
            (40, 40),
            (500, 500),
        ] {
            assert_eq!(pause_after(ms(took)), ms(pause), "{took} ms");
            let longest_wait = ms(took) + pause_after(ms(took)) + ms(took);
            assert!(longest_wait <= MAX_DELAY.max(ms(took) * 3), "{took} ms");
        }
    }

    #[test]
    fn the_first_write_starts_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = ResultsFile::open(dir.path()).unwrap();
        assert!(file.next_write() <= Instant::now());
        let started = Instant::now();
        file.save(&changes(&[("a", Some(1))])).unwrap();
        let pause = file.next_write().duration_since(Instant::now());
        assert!(pause <= MAX_DELAY.max(started.elapsed()));
    }
}
