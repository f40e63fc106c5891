//! Names of rotated log files, as upstream gives them: `0.log.20260102-030405`, with `.gz` once
//! packed and `.tmp` while that is under way.

/// What a rotated file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// As the runtime wrote it.
    Plain,
    /// Packed by gzip.
    Packed,
    /// Being packed, or left over from that.
    Unfinished,
}

/// The name of a rotated file, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rotated<'a> {
    /// When it was rotated, `YYYYMMDD-HHMMSS`: its order is that of its letters.
    pub stamp: &'a str,
    /// What it is.
    pub form: Form,
}

impl<'a> Rotated<'a> {
    /// Reads the name of a file beside the log `log` (`0.log`); `None` when it is no rotation of it.
    pub fn parse(log: &str, file: &'a str) -> Option<Self> {
        let rest = file.strip_prefix(log)?.strip_prefix('.')?;
        let (stamp, form) = match rest.split_once('.') {
            None => (rest, Form::Plain),
            Some((stamp, "gz")) => (stamp, Form::Packed),
            Some((stamp, "tmp")) => (stamp, Form::Unfinished),
            Some(_) => return None,
        };
        let is_stamp = stamp.len() == 15
            && stamp.bytes().enumerate().all(|(at, byte)| match at {
                8 => byte == b'-',
                _ => byte.is_ascii_digit(),
            });
        is_stamp.then_some(Rotated { stamp, form })
    }

    /// The name of such a file.
    pub fn name(self, log: &str) -> String {
        let ending = match self.form {
            Form::Plain => "",
            Form::Packed => ".gz",
            Form::Unfinished => ".tmp",
        };
        format!("{log}.{}{ending}", self.stamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let stamp = "20260102-030405";
        for (form, file) in [
            (Form::Plain, "0.log.20260102-030405"),
            (Form::Packed, "0.log.20260102-030405.gz"),
            (Form::Unfinished, "0.log.20260102-030405.tmp"),
        ] {
            let parsed = Rotated::parse("0.log", file);
            assert_eq!(parsed, Some(Rotated { stamp, form }));
            assert_eq!(parsed.unwrap().name("0.log"), file);
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
            assert_eq!(Rotated::parse("0.log", file), None, "{file}");
        }
    }
}
