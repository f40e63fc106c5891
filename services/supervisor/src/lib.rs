//! Keeps the services and shows what they say; the command `polylet`.
//!
//! `polylet run` opens every service's listening socket, starts the services in rank order, hands
//! the sockets down and starts again what ends. One task (`run::stack`) owns all of that; its one
//! enum of inputs is fed by a task per child that waits for its end, one that watches its health
//! and one that reads its notify socket. Beside it the supervisor's own socket serves the list of
//! services and takes the services' spans into a bounded ring (`traces`), from where they are
//! forwarded when asked for. It takes the kubelet's flags (`flags`): with the files they are one
//! effective configuration, which the services are started with. The other commands are clients of these sockets.

mod cli;
mod client;
pub mod core;
mod flags;
mod run;
mod show;
mod traces;

use polylet_kit::{Api, Call, Keep, Manifest};

pub use cli::main;

/// What the supervisor and its command line are to the others; beside this it asks every service for
/// its health and info.
pub static MANIFEST: Manifest = Manifest {
    service: "supervisor",
    version: env!("CARGO_PKG_VERSION"),
    about: "keeps the services and shows what they say",
    serves: &[Api {
        package: "polylet.supervisor.v1",
        level: 1,
    }],
    calls: &[
        Call {
            service: "status-reporter",
            package: "polylet.status.v1",
            level: 1,
        },
        Call {
            service: "pod-config",
            package: "polylet.podconfig.v1",
            level: 1,
        },
    ],
    keeps: &[
        Keep {
            path: "run:supervisor.lock",
            what: "that there is one supervisor on these directories",
        },
        Keep {
            path: "run:config.yaml",
            what: "the configuration made of files and flags, for the services to read",
        },
    ],
};
