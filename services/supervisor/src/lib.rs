//! The supervisor of the services, and the command `polylet`.
//!
//! `polylet run` opens the listening socket of every service, starts the services in rank order, passes the
//! sockets to them, and restarts those that exit. The event loop (`run::event_loop`) owns their processes;
//! its inputs (`run::input`) come from one task per process that waits for its exit, one that watches its
//! health, and one that reads its notify socket. The supervisor's own socket serves the list of services
//! and receives their spans into a bounded ring (`traces`), from where they are forwarded if configured.
//!
//! `polylet run` accepts the kubelet's flags (`flags`) and merges them with the files into one effective
//! configuration, which the services are started with. The other commands are clients of the sockets.
//!
//! `polylet upgrade` and `polylet rollback` replace the programs of services one by one (`upgrade`): the
//! supervisor carries that out, and continues it after a restart of its own.

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

mod args;
mod backend;
mod cli;
mod client;
pub mod core;
mod flags;
#[doc(hidden)]
pub mod fuzzing;
mod handover;
mod run;
mod show;
mod systemctl;
mod takeover;
mod traces;
mod upgrade;

use polylet_kit::{Api, Dependency, ServiceDescriptor, StateFileDecl, StateFormat};
use polylet_wire::levels;

pub use cli::{command, main};

/// Interfaces, dependencies and state files of the supervisor and the command line. In addition it calls
/// every service for its health and info, and publishes what it has counted to node-api.
pub static DESCRIPTOR: ServiceDescriptor = ServiceDescriptor {
    service: "supervisor",
    version: env!("CARGO_PKG_VERSION"),
    about: "supervises the services; the command line",
    serves: &[Api {
        package: "polylet.supervisor.v1",
        level: levels::SUPERVISOR,
    }],
    calls: &[
        Dependency {
            service: "status-reporter",
            package: "polylet.status.v1",
            level: levels::STATUS,
        },
        Dependency {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: levels::PODCONFIG,
        },
    ],
    state_files: &[
        StateFileDecl {
            path: "run:supervisor.lock",
            format: None,
            description: "the lock that excludes a second supervisor on these directories",
        },
        StateFileDecl {
            path: "run:config.yaml",
            format: None,
            description: "the effective configuration out of files and flags, for the services",
        },
        StateFileDecl {
            path: "state:upgrades.json",
            format: Some(StateFormat::only(upgrade::log::VERSION)),
            description: "how far an upgrade is, so that it is continued after a crash, and those that ended",
        },
    ],
    subprocesses: &[],
};
