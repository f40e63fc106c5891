//! Names of rotated log files, as upstream's: `0.log.20260102-030405`, with the suffix `.gz` for
//! compressed files, and `.tmp` during the compression.

/// The kind of a rotated file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RotatedKind {
    /// An uncompressed file.
    Plain,
    /// Compressed by gzip.
    Compressed,
    /// Being compressed, or left by a compression that was interrupted.
    Temporary,
}

/// The parsed name of a rotated file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RotatedName<'a> {
    /// The time of the rotation, `YYYYMMDD-HHMMSS`, which sorts by time.
    pub stamp: &'a str,
    /// The kind of the file.
    pub kind: RotatedKind,
}

impl<'a> RotatedName<'a> {
    /// Parses a file name; `None` if it is not a rotated file of the log `log` (`0.log`).
    pub fn parse(log: &str, file: &'a str) -> Option<Self> {
        let rest = file.strip_prefix(log)?.strip_prefix('.')?;
        let (stamp, kind) = match rest.split_once('.') {
            None => (rest, RotatedKind::Plain),
            Some((stamp, "gz")) => (stamp, RotatedKind::Compressed),
            Some((stamp, "tmp")) => (stamp, RotatedKind::Temporary),
            Some(_) => return None,
        };
        let is_stamp = stamp.len() == 15
            && stamp.bytes().enumerate().all(|(at, byte)| match at {
                8 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        is_stamp.then_some(RotatedName { stamp, kind })
    }

    /// The file name.
    pub fn file_name(self, log: &str) -> String {
        let suffix = match self.kind {
            RotatedKind::Plain => "",
            RotatedKind::Compressed => ".gz",
            RotatedKind::Temporary => ".tmp",
        };
        format!("{log}.{}{suffix}", self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let stamp = "20260102-030405";
        for (kind, file) in [
            (RotatedKind::Plain, "0.log.20260102-030405"),
            (RotatedKind::Compressed, "0.log.20260102-030405.gz"),
            (RotatedKind::Temporary, "0.log.20260102-030405.tmp"),
        ] {
            let parsed = RotatedName::parse("0.log", file);
            assert_eq!(parsed, Some(RotatedName { stamp, kind }));
            assert_eq!(parsed.unwrap().file_name("0.log"), file);
        }
        for file in [
            "0.log",
            "0.log.",
            "10.log.20260102-030405",
            "0.log.2026010x-030405",
            "0.log.20260102-030405.zst",
            "0.log.20260102-030405.gz.tmp",
            "0.log.20260102é03040",
        ] {
            assert_eq!(RotatedName::parse("0.log", file), None, "{file}");
        }
    }
}
