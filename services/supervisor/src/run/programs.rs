use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::core::order::SERVICES;

/// Why the services' programs cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramsError {
    #[error("finding this program's own directory")]
    Own(#[source] std::io::Error),
    #[error("missing in {directory}: {names} (binDirectory in PolyletConfiguration names another)")]
    Missing { directory: PathBuf, names: String },
}

/// The program of each service, in the order of [`SERVICES`]: in the directory that the
/// configuration names, or beside this one.
pub(super) fn find(directory: Option<&Path>) -> Result<Vec<PathBuf>, ProgramsError> {
    let directory = match directory {
        Some(directory) => directory.to_owned(),
        None => {
            let own = std::env::current_exe().map_err(ProgramsError::Own)?;
            own.parent().map(Path::to_owned).unwrap_or_default()
        }
    };
    let programs = SERVICES.map(|service| directory.join(format!("polylet-{}", service.name)));
    let missing: Vec<String> = programs
        .iter()
        .filter(|program| !is_program(program))
        .filter_map(|program| Some(program.file_name()?.to_string_lossy().into_owned()))
        .collect();
    if missing.is_empty() {
        Ok(programs.into())
    } else {
        Err(ProgramsError::Missing {
            directory,
            names: missing.join(", "),
        })
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        for service in &SERVICES[1..] {
            let path = dir.path().join(format!("polylet-{}", service.name));
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let error = find(Some(dir.path())).unwrap_err().to_string();
        assert!(error.contains("polylet-pleg (binDirectory"), "{error}");
    }
}
