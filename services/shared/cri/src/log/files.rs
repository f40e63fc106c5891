use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// The rotated files of a log, oldest first; the current one is not among them. Compressed ones
/// are left out.
pub(super) fn rotated(current: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(dir), Some(name)) = (current.parent(), current.file_name()) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if is_rotation_of(name, &entry.file_name()) {
            found.push(entry.path());
        }
    }
    // The suffix is a time whose order is that of its letters.
    found.sort();
    Ok(found)
}

fn is_rotation_of(current: &OsStr, name: &OsStr) -> bool {
    let (current, name) = (current.as_encoded_bytes(), name.as_encoded_bytes());
    let Some(suffix) = name
        .strip_prefix(current)
        .and_then(|rest| rest.strip_prefix(b"."))
    else {
        return false;
    };
    suffix.len() == 15
        && suffix.iter().enumerate().all(|(at, byte)| {
            if at == 8 {
                *byte == b'-'
            } else {
                byte.is_ascii_digit()
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_rotations_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let current = dir.path().join("0.log");
        for name in [
            "0.log",
            "0.log.20260102-030405",
            "0.log.20260101-030405",
            "0.log.20260101-030405.gz",
            "0.log.20260101-030405.tmp",
            "0.log.2026010x-030405",
            "10.log.20260101-030405",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let found = rotated(&current).unwrap();
        let names: Vec<_> = found
            .iter()
            .map(|p| p.file_name().unwrap().to_str().unwrap())
            .collect();
        assert_eq!(names, ["0.log.20260101-030405", "0.log.20260102-030405"]);
        assert!(rotated(Path::new("/nowhere/at/all")).unwrap().is_empty());
    }
}
