//! All programs of a node in one file, which is what the name says that it is started under.
//!
//! Processes that run the same file share its pages in memory, so ten of them take little more room
//! than one. Nothing else changes: each is a process of its own, with its own sockets, and any name
//! may be given another file, which then is that service's upgrade alone.
//! `polylet-multicall --install DIR` makes the names, its own among them. One task, of the program that was asked for;
//! inputs: the name and the arguments; outputs: that program's.

mod install;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use polylet_kit::Exit;

/// What this file is called when it is none of them.
const OWN: &str = "polylet-multicall";

/// A program's `main`.
type Main = fn() -> ExitCode;

/// Each program by its name.
const PROGRAMS: [(&str, Main); 10] = [
    ("polylet", polylet_supervisor::main),
    ("polylet-pod-config", || {
        polylet_kit::main(&polylet_pod_config::MANIFEST, polylet_pod_config::build)
    }),
    ("polylet-pleg", || {
        polylet_kit::main(&polylet_pleg::MANIFEST, polylet_pleg::build)
    }),
    ("polylet-prober", || {
        polylet_kit::main(&polylet_prober::MANIFEST, polylet_prober::build)
    }),
    ("polylet-volume-manager", polylet_volume_manager::main),
    ("polylet-image-gc", || {
        polylet_kit::main(&polylet_image_gc::MANIFEST, polylet_image_gc::build)
    }),
    ("polylet-eviction", || {
        polylet_kit::main(&polylet_eviction::MANIFEST, polylet_eviction::build)
    }),
    ("polylet-sync-coordinator", || {
        let manifest = &polylet_sync_coordinator::MANIFEST;
        polylet_kit::main(manifest, polylet_sync_coordinator::build)
    }),
    ("polylet-status-reporter", || {
        let manifest = &polylet_status_reporter::MANIFEST;
        polylet_kit::main(manifest, polylet_status_reporter::build)
    }),
    ("polylet-node-api", || {
        polylet_kit::main(&polylet_node_api::MANIFEST, polylet_node_api::build)
    }),
];

fn main() -> ExitCode {
    let first = std::env::args_os().next().unwrap_or_default();
    match called(&first) {
        Some(main) => main(),
        None => own(),
    }
}

/// The program of this name, wherever it lies. In the place of a kubelet it is the supervisor.
fn called(first: &OsStr) -> Option<Main> {
    let name = Path::new(first).file_name()?.to_str()?;
    let name = if name == "kubelet" { "polylet" } else { name };
    let program = PROGRAMS.iter().find(|(program, _)| *program == name)?;
    Some(program.1)
}

/// Under its own name, or under one that nobody knows.
fn own() -> ExitCode {
    let names = PROGRAMS.map(|(name, _)| name);
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    match words.as_slice() {
        [option, directory] if option == "--install" => {
            let all = names.iter().chain(&[OWN]).copied();
            match install::install(Path::new(directory), all) {
                Ok(()) => Exit::Ok.into(),
                Err(error) => {
                    eprintln!("{OWN}: {}", polylet_kit::report(&error));
                    Exit::Failed.into()
                }
            }
        }
        [option] if option == "--version" => {
            println!("{OWN} {}", env!("CARGO_PKG_VERSION"));
            Exit::Ok.into()
        }
        words => {
            let help = matches!(words, [option] if option == "--help" || option == "-h");
            let text = format!(
                "{OWN}: what it does depends on the name that it is started under: {}.\n\
                 usage: {OWN} --install DIR   makes these names there, as links to one copy of this file\n       \
                 {OWN} --version",
                names.join(", ")
            );
            if help {
                println!("{text}");
                return Exit::Ok.into();
            }
            eprintln!("{text}");
            Exit::Usage.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_says_nothing_and_the_name_all() {
        for (name, main) in PROGRAMS {
            for dir in ["", "/usr/bin/", "./"] {
                let found = called(OsStr::new(&format!("{dir}{name}"))).expect("a program");
                assert!(std::ptr::fn_addr_eq(found, main), "{dir}{name}");
            }
        }
        assert!(called(OsStr::new("/usr/bin/kubelet")).is_some());
        for none in [
            "",
            "/",
            "polylet-multicall",
            "polylet-",
            "/polylet/other",
            "Polylet",
        ] {
            assert!(called(OsStr::new(none)).is_none(), "{none}");
        }
    }

    #[test]
    fn every_service_has_its_name() {
        let manifests = [
            &polylet_pod_config::MANIFEST,
            &polylet_pleg::MANIFEST,
            &polylet_prober::MANIFEST,
            &polylet_volume_manager::MANIFEST,
            &polylet_image_gc::MANIFEST,
            &polylet_eviction::MANIFEST,
            &polylet_sync_coordinator::MANIFEST,
            &polylet_status_reporter::MANIFEST,
            &polylet_node_api::MANIFEST,
        ];
        for manifest in manifests {
            let name = format!("polylet-{}", manifest.service);
            assert!(called(OsStr::new(&name)).is_some(), "{name}");
        }
    }
}
