//! Sets of programs, and which of them fit by their descriptors.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polylet_e2e::ok;
use polylet_harness::machine;
use serde_json::{Value, json};

/// The supervisor.
pub(crate) const SUPERVISOR: &str = "supervisor";

/// All services, callees first.
pub(crate) const ALL: [&str; 11] = [
    "pod-config",
    "device-manager",
    "pleg",
    "prober",
    "image-gc",
    "volume-manager",
    "eviction",
    "sync-coordinator",
    "status-reporter",
    "node-api",
    SUPERVISOR,
];

/// What each service of a node serves and needs, by service: descriptors.
pub(crate) type Descriptors = BTreeMap<&'static str, Value>;

/// All programs of one version.
pub(crate) struct ProgramSet {
    /// As it is called in the output.
    pub(crate) name: String,
    /// The files of the programs, by service.
    files: BTreeMap<&'static str, PathBuf>,
    /// What they print about themselves.
    pub(crate) descriptors: Descriptors,
}

impl ProgramSet {
    /// Reads the descriptors of the programs in a directory. An earlier version may not have all services.
    pub(crate) fn read(name: &str, directory: &Path) -> Self {
        let file = |service: &'static str| (service, directory.join(program_name(service)));
        let files = ALL.into_iter().map(file);
        let files: BTreeMap<_, _> = files.filter(|(_, file)| file.exists()).collect();
        let descriptor = |(service, program): (&&'static str, &PathBuf)| {
            let printed = ok(Command::new(program).arg("--descriptor").output());
            if *service == SUPERVISOR && !printed.status.success() {
                // One from before the first tag prints none; no service calls it.
                return (*service, json!({ "service": service }));
            }
            let descriptor: Value = ok(serde_json::from_slice(&printed.stdout));
            assert_eq!(descriptor["service"], **service, "{}", program.display());
            (*service, descriptor)
        };
        let descriptors = files.iter().map(descriptor).collect();
        Self {
            name: name.to_owned(),
            files,
            descriptors,
        }
    }

    /// Takes the services that this version does not have from another one, and the supervisor with them,
    /// since this version's does not start them.
    pub(crate) fn complete_with(&mut self, other: &ProgramSet) {
        let missing = |service: &&str| !self.files.contains_key(service);
        let missing: Vec<_> = ALL.into_iter().filter(missing).collect();
        if missing.is_empty() {
            return;
        }
        for service in missing.into_iter().chain([SUPERVISOR]) {
            println!("{service} of {} is that of {}", self.name, other.name);
            let descriptor = other.descriptors[service].clone();
            self.files.insert(service, other.file(service).to_owned());
            self.descriptors.insert(service, descriptor);
        }
    }

    /// The program of a service.
    pub(crate) fn file(&self, service: &str) -> &Path {
        &self.files[service]
    }

    /// Links the program of a service into a directory, in place of the one there.
    pub(crate) fn install(&self, service: &str, directory: &Path) {
        let name = program_name(service);
        let aside = directory.join(format!(".{name}"));
        ok(fs::hard_link(self.file(service), &aside));
        ok(fs::rename(&aside, directory.join(&name)));
    }

    /// A directory with all of them, on their file system.
    pub(crate) fn directory_of_links(&self) -> tempfile::TempDir {
        let directory = ok(tempfile::tempdir_in(machine::target_dir()));
        for service in ALL {
            self.install(service, directory.path());
        }
        directory
    }
}

/// The file name of a service's program.
pub(crate) fn program_name(service: &str) -> String {
    match service {
        SUPERVISOR => "polylet".to_owned(),
        other => format!("polylet-{other}"),
    }
}

/// A call that the callee does not serve as the caller needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) caller: String,
    pub(crate) callee: String,
    pub(crate) package: String,
    pub(crate) served: u64,
    pub(crate) needed: u64,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (caller, callee, package) = (&self.caller, &self.callee, &self.package);
        let (served, needed) = (self.served, self.needed);
        write!(
            f,
            "{caller} needs {package} of {callee} at level {needed}, not {served}"
        )
    }
}

/// The calls between these programs that do not fit. Those of the supervisor are those of its command
/// line.
pub(crate) fn misfits(programs: &Descriptors) -> Vec<Misfit> {
    let mut found = Vec::new();
    for (caller, descriptor) in programs {
        for call in list(&descriptor["calls"]) {
            let callee = text(&call["service"]);
            let package = text(&call["package"]);
            let served = programs.get(callee).map(|callee| &callee["serves"]);
            let served = served.into_iter().flat_map(list);
            let api = served.into_iter().find(|api| api["package"] == package);
            let served = api.and_then(|api| api["level"].as_u64()).unwrap_or(0);
            let needed = call["level"].as_u64().unwrap_or(0);
            if served < needed {
                found.push(Misfit {
                    caller: (*caller).to_owned(),
                    callee: callee.to_owned(),
                    package: package.to_owned(),
                    served,
                    needed,
                });
            }
        }
    }
    found
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
