//! Removal of files that nothing reads any more from the service's directories: temporary files that
//! a crash left, and after a while those that were set aside because they could not be used. Both may
//! contain Secrets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::state_file::{BROKEN, TEMPORARY};

/// How long a file that was set aside stays for inspection.
const BROKEN_RETENTION: Duration = Duration::from_secs(3 * 24 * 3600);
/// How often it is checked whether that is over.
const INTERVAL: Duration = Duration::from_secs(24 * 3600);
/// The depth to which directories are searched: state is not nested deeper.
const MAX_DEPTH: u32 = 3;

/// Removes the temporary files of an earlier process. To be called before this one writes any.
pub(crate) fn remove_temporary(directories: &[PathBuf]) {
    for directory in directories {
        remove(directory, MAX_DEPTH, &|path| has_suffix(path, TEMPORARY));
    }
}

/// Removes files that were set aside, when their time is over; never returns.
pub(crate) async fn remove_broken(directories: Vec<PathBuf>) {
    loop {
        let directories = directories.clone();
        // A failure is another attempt a day later.
        let _ = tokio::task::spawn_blocking(move || {
            for directory in &directories {
                let now = SystemTime::now();
                remove(directory, MAX_DEPTH, &|path| is_expired(path, now));
            }
        })
        .await;
        tokio::time::sleep(INTERVAL).await;
    }
}

fn is_expired(path: &Path, now: SystemTime) -> bool {
    use std::os::unix::fs::MetadataExt;
    // The inode changes when the file is renamed; its content is older.
    let set_aside = fs::symlink_metadata(path).map(|meta| {
        let seconds = u64::try_from(meta.ctime()).unwrap_or_default();
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    });
    let age = set_aside.map(|at| now.duration_since(at).unwrap_or_default());
    has_suffix(path, BROKEN) && age.is_ok_and(|age| age >= BROKEN_RETENTION)
}

fn has_suffix(path: &Path, suffix: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.ends_with(suffix))
}

fn remove(directory: &Path, depth: u32, is_stale: &impl Fn(&Path) -> bool) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        match kind {
            Ok(kind) if kind.is_dir() && depth > 1 => remove(&path, depth - 1, is_stale),
            Ok(kind) if kind.is_file() && is_stale(&path) => match fs::remove_file(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed stale state file"),
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, %error, "failed to remove stale state file");
                }
            },
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn temporary_files_go_at_once_and_broken_ones_later() {
        let dir = tempfile::tempdir().unwrap();
        let nested = dir.path().join("checkpoints");
        fs::create_dir(&nested).unwrap();
        for name in ["a.json", "a.json.new", "b.json.broken", "new", "c.new.json"] {
            fs::write(dir.path().join(name), "").unwrap();
            fs::write(nested.join(name), "").unwrap();
        }
        remove_temporary(&[dir.path().to_owned()]);
        let kept = ["a.json", "b.json.broken", "c.new.json", "new"];
        assert_eq!(names(&nested), kept);

        let broken = nested.join("b.json.broken");
        let now = SystemTime::now();
        assert!(!is_expired(&broken, now));
        let later = now + BROKEN_RETENTION + Duration::from_secs(1);
        assert!(is_expired(&broken, later));
        assert!(!is_expired(&nested.join("a.json"), later));
        remove(dir.path(), MAX_DEPTH, &|path| is_expired(path, later));
        assert_eq!(names(&nested), ["a.json", "c.new.json", "new"]);
        assert_eq!(
            names(dir.path()),
            ["a.json", "c.new.json", "checkpoints", "new"]
        );
    }
}
