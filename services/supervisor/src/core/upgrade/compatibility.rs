//! Whether a program is compatible with the programs of its peers and with the files on disk.

use std::collections::BTreeMap;

use super::program::ProgramDescriptor;

/// The programs that run, by service.
pub type RunningPrograms = BTreeMap<String, ProgramDescriptor>;

/// Why a program cannot replace the present one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatibility {
    /// It is the program of another service.
    #[error("the program is that of {found}, not of {expected}")]
    WrongService {
        /// The service to upgrade.
        expected: String,
        /// The service of the program.
        found: String,
    },
    /// Its version cannot be the name of a directory.
    #[error("the program of {service} has the invalid version {version:?}")]
    InvalidVersion {
        /// The service.
        service: String,
        /// The version.
        version: String,
    },
    /// A caller needs more than its callee serves.
    #[error(
        "{caller} needs {package} of {callee} at level {needed}, but {callee} would serve level {served}"
    )]
    Edge {
        /// The service that calls.
        caller: String,
        /// The service that is called.
        callee: String,
        /// The wire package.
        package: String,
        /// The level that the caller needs.
        needed: u32,
        /// The level that the callee serves; zero if it does not serve the package.
        served: u32,
    },
    /// The new program cannot read what the present one has written.
    #[error(
        "{service} would not read {path}, which is written at version {written}: it reads {oldest_read} to {newest_read}"
    )]
    UnreadableState {
        /// The service.
        service: String,
        /// The file.
        path: String,
        /// The version on disk.
        written: u32,
        /// The oldest version that is read.
        oldest_read: u32,
        /// The newest version that is read.
        newest_read: u32,
    },
}

/// Checks programs that replace the running ones in this order, each against what runs by then. Empty if
/// all are compatible.
pub fn check<'a>(
    programs: impl IntoIterator<Item = (&'a str, &'a ProgramDescriptor)>,
    mut running: RunningPrograms,
) -> Vec<Incompatibility> {
    let mut found = Vec::new();
    for (service, program) in programs {
        if program.service != service {
            found.push(Incompatibility::WrongService {
                expected: service.to_owned(),
                found: program.service.clone(),
            });
            continue;
        }
        if !super::program::is_version_name(&program.version) {
            found.push(Incompatibility::InvalidVersion {
                service: service.to_owned(),
                version: program.version.clone(),
            });
        }
        if let Some(present) = running.get(service) {
            found.extend(unreadable_state(program, present));
        }
        // An edge that does not fit now is no reason to keep the program.
        let unfit = edges_of(service, &running);
        running.insert(service.to_owned(), program.clone());
        let edges = edges_of(service, &running).into_iter();
        found.extend(edges.filter(|edge| !unfit.contains(edge)));
    }
    found
}

/// The files of a program that the one before it could not read: after the upgrade there is no way back.
pub fn no_way_back(
    program: &ProgramDescriptor,
    present: &ProgramDescriptor,
) -> Vec<Incompatibility> {
    unreadable_state(present, program)
}

/// The files written by `writer` that `reader` cannot read.
fn unreadable_state(
    reader: &ProgramDescriptor,
    writer: &ProgramDescriptor,
) -> Vec<Incompatibility> {
    let mut found = Vec::new();
    for file in &writer.state_files {
        let (Some(written), Some(read)) = (file.format, reader.format(&file.path)) else {
            continue;
        };
        if !read.reads(written.written) {
            found.push(Incompatibility::UnreadableState {
                service: reader.service.clone(),
                path: file.path.clone(),
                written: written.written,
                oldest_read: read.oldest_read,
                newest_read: read.written,
            });
        }
    }
    found
}

/// The calls from and to a service that the callee does not serve as needed.
fn edges_of(service: &str, running: &RunningPrograms) -> Vec<Incompatibility> {
    let mut found = Vec::new();
    for (caller, program) in running {
        for call in &program.calls {
            if caller != service && call.service != service {
                continue;
            }
            // A peer that does not run cannot be judged; its own upgrade is.
            let Some(callee) = running.get(&call.service) else {
                continue;
            };
            let served = callee.served_level(&call.package);
            if served < call.level {
                found.push(Incompatibility::Edge {
                    caller: caller.clone(),
                    callee: call.service.clone(),
                    package: call.package.clone(),
                    needed: call.level,
                    served,
                });
            }
        }
    }
    found
}

#[cfg(test)]
#[path = "compatibility_tests.rs"]
mod tests;
