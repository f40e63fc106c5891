//! The files of one log: which are removed, which are compressed, and the next name.

use jiff::civil::DateTime;
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use polylet_cri::log::{RotatedKind, RotatedName};

const STAMP_FORMAT: &str = "%Y%m%d-%H%M%S";

/// Work on the rotated files of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotationCleanup {
    /// Names of files to remove.
    pub remove: Vec<String>,
    /// Names of files to compress.
    pub compress: Vec<String>,
}

/// Cleans up the rotated files of `log`, which itself counts towards `max_files`. As upstream:
/// temporary files are removed, and plain ones that exist compressed; then the oldest beyond the
/// limit; all but the newest are compressed, since its readers may not have finished.
pub fn clean_up(log: &str, names: &[String], max_files: usize) -> RotationCleanup {
    let mut found: Vec<RotatedName<'_>> = names
        .iter()
        .filter_map(|name| RotatedName::parse(log, name))
        .collect();
    found.sort_unstable();
    let is_compressed = |file: &RotatedName<'_>| {
        found.contains(&RotatedName {
            kind: RotatedKind::Compressed,
            ..*file
        })
    };
    let (complete, redundant): (Vec<RotatedName<'_>>, Vec<RotatedName<'_>>) =
        found.iter().copied().partition(|file| match file.kind {
            RotatedKind::Plain => !is_compressed(file),
            RotatedKind::Compressed => true,
            RotatedKind::Temporary => false,
        });
    let excess = complete.len().saturating_sub(max_files.saturating_sub(1));
    let (oldest, remaining) = complete.split_at(excess);
    let removed = redundant.iter().chain(oldest);
    let mut cleanup = RotationCleanup {
        remove: removed.map(|file| file.file_name(log)).collect(),
        compress: Vec::new(),
    };
    if let Some((_newest, older)) = remaining.split_last() {
        let plain = older.iter().filter(|file| file.kind == RotatedKind::Plain);
        cleanup.compress = plain.map(|file| file.file_name(log)).collect();
    }
    cleanup
}

/// The name that `log` gets by a rotation now: the time in UTC, and later than all existing names,
/// also after a backward clock step.
pub fn next_name(log: &str, names: &[String], now: Timestamp) -> String {
    let mut time = now.to_zoned(TimeZone::UTC).datetime();
    let newest = names
        .iter()
        .filter_map(|name| RotatedName::parse(log, name))
        .filter_map(|file| DateTime::strptime(STAMP_FORMAT, file.stamp).ok())
        .max();
    if let Some(newest) = newest {
        time = time.max(newest.saturating_add(SignedDuration::from_secs(1)));
    }
    let stamp = time.strftime(STAMP_FORMAT).to_string();
    let name = RotatedName {
        stamp: &stamp,
        kind: RotatedKind::Plain,
    };
    name.file_name(log)
}
