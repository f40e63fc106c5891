use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use polylet_vm::agent::StateInspection;
use serde::de::IgnoredAny;

/// Prints an inspection of these directories as JSON.
pub(crate) fn print(directories: &[&str]) -> io::Result<()> {
    let mut inspection = StateInspection::default();
    for directory in directories {
        inspect(Path::new(directory), &mut inspection)?;
    }
    println!("{}", serde_json::to_string(&inspection)?);
    Ok(())
}

/// Adds the files below a directory. State files are JSON; other files (certificates, logs of
/// records, files that were still being written) are skipped.
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
        Some("json") => match serde_json::from_slice::<IgnoredAny>(&fs::read(path)?) {
            Ok(_) => inspection.whole += 1,
            Err(error) => inspection.torn.push(format!("{shown}: {error}")),
        },
        _ => {}
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
}
