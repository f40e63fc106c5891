//! Memory and swap of the machine, from `/proc/meminfo` (proc_meminfo(5)).
//!
//! An own parser, although `procfs` has one: `procfs::Meminfo` panics on a name that is not ASCII,
//! overflows on large values, and fails as a whole when an unused field is missing, which is what
//! file systems that stand in for the kernel's in system containers may serve.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

const PATH: &str = "/proc/meminfo";
/// The most bytes of it: it has some 50 short lines.
const MAX_BYTES: usize = 16 << 10;

/// The machine's memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemInfo {
    /// `MemTotal`.
    pub total: u64,
    /// `MemFree`.
    pub free: u64,
    /// `Inactive(file)`: file pages that have not been used for long.
    pub inactive_file: u64,
    /// `AnonPages`.
    pub anonymous: u64,
    /// `SwapTotal`.
    pub swap_total: u64,
    /// `SwapFree`.
    pub swap_free: u64,
}

/// `/proc/meminfo` cannot be read or parsed.
#[derive(Debug, thiserror::Error)]
pub enum MemInfoError {
    /// The file cannot be read.
    #[error("reading /proc/meminfo")]
    Read(#[source] std::io::Error),
    /// A field is missing or not a number of kilobytes.
    #[error("/proc/meminfo has no valid {0}")]
    Missing(&'static str),
}

impl MemInfo {
    /// Memory in use: all that is not free.
    pub fn usage(&self) -> u64 {
        self.total.saturating_sub(self.free)
    }

    /// The working set as cAdvisor counts it for the root cgroup: usage less the inactive file
    /// pages.
    pub fn working_set(&self) -> u64 {
        self.usage().saturating_sub(self.inactive_file)
    }
}

/// Reads the present values. After the first time also when no file can be opened, for lack of file
/// descriptors: memory pressure must be seen then, too.
pub fn read() -> Result<MemInfo, MemInfoError> {
    static OPEN: OnceLock<File> = OnceLock::new();
    // One call of the kernel instead of a dozen.
    let again = OPEN.get().and_then(|file| read_again(file).ok());
    let text = match again {
        Some(text) => text,
        None => {
            let file = File::open(PATH).map_err(MemInfoError::Read)?;
            let text = read_again(&file).map_err(MemInfoError::Read)?;
            OPEN.get_or_init(|| file);
            text
        }
    };
    parse(&text)
}

/// The present content of an open file of the kernel.
fn read_again(file: &File) -> std::io::Result<Vec<u8>> {
    let mut text = vec![0; MAX_BYTES];
    let length = file.read_at(&mut text, 0)?;
    text.truncate(length);
    Ok(text)
}

/// The same for a text that was read already.
pub fn parse(text: &[u8]) -> Result<MemInfo, MemInfoError> {
    let text = String::from_utf8_lossy(text);
    let values: HashMap<&str, u64> = text.lines().filter_map(parse_line).collect();
    let value = |name| values.get(name).copied();
    let required = |name| value(name).ok_or(MemInfoError::Missing(name));
    Ok(MemInfo {
        total: required("MemTotal")?,
        free: required("MemFree")?,
        inactive_file: value("Inactive(file)").unwrap_or(0),
        anonymous: value("AnonPages").unwrap_or(0),
        swap_total: required("SwapTotal")?,
        swap_free: required("SwapFree")?,
    })
}

/// `MemTotal:       16323472 kB`, in bytes.
fn parse_line(line: &str) -> Option<(&str, u64)> {
    let (name, value) = line.split_once(':')?;
    let (kibibytes, _) = value.trim().split_once(" kB")?;
    Some((name, kibibytes.parse::<u64>().ok()?.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory() {
        let info = read().unwrap();
        assert!(info.total > info.free && info.free > 0, "{info:?}");
        assert!(info.working_set() <= info.usage() && info.usage() < info.total);
        assert!(info.swap_free <= info.swap_total);
    }

    #[test]
    fn an_open_file_shows_the_present_values() {
        let file = File::open(PATH).unwrap();
        let whole = std::fs::read(PATH).unwrap();
        for _ in 0..2 {
            let text = read_again(&file).unwrap();
            assert_eq!(parse(&text).unwrap().total, parse(&whole).unwrap().total);
            let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(lines(&text), lines(&whole));
        }
    }

    #[test]
    fn agrees_with_procfs_on_this_machine() {
        use procfs::Current;
        let (ours, theirs) = (read().unwrap(), procfs::Meminfo::current().unwrap());
        assert_eq!(
            (ours.total, ours.swap_total),
            (theirs.mem_total, theirs.swap_total)
        );
    }

    #[test]
    fn invalid_lines_are_left_out() {
        let text = "MemTotal: 2 kB\nMemFree: 1 kB\nSwapTotal: 0 kB\nSwapFree:0 kB\n\u{4bb}x 20\n\
            AnonPages: 99999999999999999 kB\nInactive(file): x kB\nMapped\n";
        let expected = MemInfo {
            total: 2048,
            free: 1024,
            ..MemInfo::default()
        };
        assert_eq!(parse(text.as_bytes()).unwrap(), expected);
        assert!(matches!(
            parse(b"MemTotal: 2 kB\n"),
            Err(MemInfoError::Missing("MemFree"))
        ));
    }

    #[test]
    fn the_working_set_leaves_out_inactive_file_pages() {
        let info = MemInfo {
            total: 100,
            free: 20,
            inactive_file: 30,
            ..MemInfo::default()
        };
        assert_eq!((info.usage(), info.working_set()), (80, 50));
        let odd = MemInfo {
            inactive_file: 90,
            ..info
        };
        assert_eq!(odd.working_set(), 0);
    }
}
