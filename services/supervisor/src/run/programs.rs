//! The programs of the services.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::core::order::SERVICES;

/// Why the services' programs cannot be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProgramsError {
    #[error("finding the directory of this program")]
    OwnDirectory(#[source] std::io::Error),
    #[error("missing in {directory}: {names} (set binDirectory in PolyletConfiguration)")]
    Missing { directory: PathBuf, names: String },
}

/// The directory of all programs: the configured one or that of this program.
pub(super) fn directory(configured: Option<&Path>) -> Result<PathBuf, ProgramsError> {
    match configured {
        Some(directory) => Ok(directory.to_owned()),
        None => {
            let own = std::env::current_exe().map_err(ProgramsError::OwnDirectory)?;
            let directory = own.parent().unwrap_or(Path::new(""));
            // The file that the link names, as `supervisor/<version>/polylet`.
            let versions = directory
                .parent()
                .filter(|path| path.ends_with("supervisor"));
            let directory = versions.and_then(Path::parent).unwrap_or(directory);
            Ok(directory.to_owned())
        }
    }
}

/// The program of each service in the order of [`SERVICES`].
pub(super) fn find(directory: &Path) -> Result<Vec<PathBuf>, ProgramsError> {
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
            directory: directory.to_owned(),
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
    fn missing_programs_are_named() {
        let dir = tempfile::tempdir().unwrap();
        for service in &SERVICES[1..] {
            let path = dir.path().join(format!("polylet-{}", service.name));
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let error = find(dir.path()).unwrap_err().to_string();
        assert!(error.contains("polylet-pleg (set binDirectory"), "{error}");
    }
}
