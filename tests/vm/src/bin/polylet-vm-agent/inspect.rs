use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polylet_vm::agent::StateInspection;
use serde::de::IgnoredAny;

/// Files with one record in each line, to which records are appended.
const RECORD_LOGS: [&str; 2] = ["pod-config/api.json", "pod-config/objects.json"];

/// Prints an inspection of these directories as JSON.
pub(crate) fn print(directories: &[&str]) -> io::Result<()> {
    let mut inspection = StateInspection::default();
    for directory in directories {
        inspect(Path::new(directory), &mut inspection)?;
    }
    println!("{}", serde_json::to_string(&inspection)?);
    Ok(())
}

/// Adds the files below a directory. State files are JSON; other files (certificates, files that were
/// still being written) are skipped.
fn inspect(directory: &Path, inspection: &mut StateInspection) -> io::Result<()> {
    let mut queue: Vec<PathBuf> = vec![directory.to_owned()];
    while let Some(path) = queue.pop() {
        let Ok(metadata) = fs::symlink_metadata(&path) else {
            continue;
        };
        if metadata.is_dir() {
            queue.extend(fs::read_dir(&path)?.flatten().map(|entry| entry.path()));
        } else if metadata.is_file() {
            inspect_file(&path, inspection)?;
        }
    }
    Ok(())
}

fn inspect_file(path: &Path, inspection: &mut StateInspection) -> io::Result<()> {
    let shown = path.display().to_string();
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("broken") => inspection.set_aside.push(shown),
        Some("json") => {
            let content = match fs::read(path) {
                // Replaced or removed by a running service.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                content => content?,
            };
            let checked = match RECORD_LOGS.iter().any(|log| path.ends_with(log)) {
                true => check_records(&content),
                false => check(&content),
            };
            match checked {
                Ok(()) => inspection.whole += 1,
                Err(error) => {
                    let size = content.len();
                    inspection
                        .torn
                        .push(format!("{shown} ({size} bytes): {error}"));
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn check(json: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<IgnoredAny>(json).map(drop)
}

/// A power cut may end the file within the last record, which was not acknowledged then; the first
/// ones are written before the file has its name.
fn check_records(lines: &[u8]) -> serde_json::Result<()> {
    for (index, line) in lines.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if index == 0 || line.ends_with(b"\n") {
            check(line)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_set_aside_files_are_found() {
        let dir = std::env::temp_dir().join(format!("polylet-vm-inspect-{}", std::process::id()));
        let below = dir.join("below");
        fs::create_dir_all(&below).expect("a directory");
        for (name, text) in [
            ("whole.json", "{}"),
            ("below/torn.json", "{"),
            ("empty.json", ""),
            ("set.json.broken", "x"),
            ("being.json.new", "{"),
            ("key.pem", "x"),
        ] {
            fs::write(dir.join(name), text).expect("a file");
        }
        let mut found = StateInspection::default();
        inspect(&dir, &mut found).expect("inspected");
        fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(
            (found.whole, found.torn.len(), found.set_aside.len()),
            (1, 2, 1)
        );
    }

    #[test]
    fn only_the_last_record_of_a_log_may_be_cut() {
        for (log, is_whole) in [
            ("", true),
            ("{}\n", true),
            ("{}\n[1]\n", true),
            ("{}\n[1", true),
            ("{}\n[1\n{}\n", false),
            ("{}\n\0\0\n", false),
            ("[1", false),
        ] {
            assert_eq!(check_records(log.as_bytes()).is_ok(), is_whole, "{log:?}");
        }
    }
}
