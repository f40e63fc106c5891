//! All programs of a node in one executable; the name of the process (`argv[0]`) selects the program.
//!
//! Processes of one executable share its pages, so eleven of them use little more memory than one. Nothing
//! else changes: each is a process with its own sockets, and a single service is upgraded by replacing the
//! file under its name. `polylet-multicall --install DIR` creates the names, its own included.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod install;

use std::ffi::OsStr;
use std::path::Path;
use std::process::ExitCode;

use polylet_kit::{Exit, ServiceDescriptor};

/// The name of the executable itself.
const OWN_NAME: &str = "polylet-multicall";

/// Descriptors of all services, callees before callers; the supervisor's comes last.
pub const DESCRIPTORS: [&ServiceDescriptor; 11] = [
    &polylet_pleg::DESCRIPTOR,
    &polylet_pod_config::DESCRIPTOR,
    &polylet_device_manager::DESCRIPTOR,
    &polylet_prober::DESCRIPTOR,
    &polylet_image_gc::DESCRIPTOR,
    &polylet_volume_manager::DESCRIPTOR,
    &polylet_eviction::DESCRIPTOR,
    &polylet_sync_coordinator::DESCRIPTOR,
    &polylet_status_reporter::DESCRIPTOR,
    &polylet_node_api::DESCRIPTOR,
    &polylet_supervisor::DESCRIPTOR,
];

/// The `main` function of a program.
type Main = fn() -> ExitCode;

/// All programs by name.
const PROGRAMS: [(&str, Main); 11] = [
    ("polylet", polylet_supervisor::main),
    ("polylet-pod-config", || {
        polylet_kit::main(&polylet_pod_config::DESCRIPTOR, polylet_pod_config::build)
    }),
    ("polylet-pleg", || {
        polylet_kit::main(&polylet_pleg::DESCRIPTOR, polylet_pleg::build)
    }),
    ("polylet-device-manager", || {
        let descriptor = &polylet_device_manager::DESCRIPTOR;
        polylet_kit::main(descriptor, polylet_device_manager::build)
    }),
    ("polylet-prober", || {
        polylet_kit::main(&polylet_prober::DESCRIPTOR, polylet_prober::build)
    }),
    ("polylet-volume-manager", || {
        let descriptor = &polylet_volume_manager::DESCRIPTOR;
        polylet_kit::main(descriptor, polylet_volume_manager::build)
    }),
    ("polylet-image-gc", || {
        polylet_kit::main(&polylet_image_gc::DESCRIPTOR, polylet_image_gc::build)
    }),
    ("polylet-eviction", || {
        polylet_kit::main(&polylet_eviction::DESCRIPTOR, polylet_eviction::build)
    }),
    ("polylet-sync-coordinator", || {
        let descriptor = &polylet_sync_coordinator::DESCRIPTOR;
        polylet_kit::main(descriptor, polylet_sync_coordinator::build)
    }),
    ("polylet-status-reporter", || {
        let descriptor = &polylet_status_reporter::DESCRIPTOR;
        polylet_kit::main(descriptor, polylet_status_reporter::build)
    }),
    ("polylet-node-api", || {
        polylet_kit::main(&polylet_node_api::DESCRIPTOR, polylet_node_api::build)
    }),
];

/// Runs the program that the name of the process selects.
pub fn main() -> ExitCode {
    let first = std::env::args_os().next().unwrap_or_default();
    match program(&first) {
        Some(main) => main(),
        None => multicall(),
    }
}

/// The program with this file name. `kubelet` is the supervisor.
fn program(first: &OsStr) -> Option<Main> {
    let name = Path::new(first).file_name()?.to_str()?;
    let name = if name == "kubelet" { "polylet" } else { name };
    let program = PROGRAMS.iter().find(|(program, _)| *program == name)?;
    Some(program.1)
}

/// Runs under its own name or an unknown one.
fn multicall() -> ExitCode {
    let names = PROGRAMS.map(|(name, _)| name);
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.as_slice() {
        [option, directory] if option == "--install" => {
            let all = names.iter().chain(&[OWN_NAME]).copied();
            match install::install(Path::new(directory), all) {
                Ok(()) => Exit::Ok.into(),
                Err(error) => {
                    eprintln!("{OWN_NAME}: {}", polylet_kit::report(&error));
                    Exit::Failed.into()
                }
            }
        }
        [option] if option == "--version" => {
            println!("{OWN_NAME} {}", env!("CARGO_PKG_VERSION"));
            Exit::Ok.into()
        }
        args => {
            let help = matches!(args, [option] if option == "--help" || option == "-h");
            let text = format!(
                "All programs of a node in one executable, selected by the process name:\n\
                 {}\n\n\
                 Usage:\n  \
                 {OWN_NAME} --install DIR  install the programs in DIR, as links to one copy of this file\n  \
                 {OWN_NAME} --version      print the version",
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
    fn programs_are_selected_by_file_name() {
        for (name, main) in PROGRAMS {
            for dir in ["", "/usr/bin/", "./"] {
                let found = program(OsStr::new(&format!("{dir}{name}"))).expect("a program");
                assert!(std::ptr::fn_addr_eq(found, main), "{dir}{name}");
            }
        }
        assert!(program(OsStr::new("/usr/bin/kubelet")).is_some());
        for none in [
            "",
            "/",
            "polylet-multicall",
            "polylet-",
            "/polylet/other",
            "Polylet",
        ] {
            assert!(program(OsStr::new(none)).is_none(), "{none}");
        }
    }

    #[test]
    fn every_service_has_a_program() {
        for descriptor in DESCRIPTORS {
            let name = match descriptor.service {
                "supervisor" => "polylet".to_owned(),
                service => format!("polylet-{service}"),
            };
            assert!(program(OsStr::new(&name)).is_some(), "{name}");
        }
    }
}
