use polylet_wire::levels;
use serde::{Serialize, Serializer};

use crate::subprocess::SubprocessEntry;

/// What a service serves, calls and stores: printed by `--descriptor`, returned by `GetInfo`,
/// checked by `tests/tidy`.
#[derive(Debug, Serialize)]
pub struct ServiceDescriptor {
    /// Short name, as in `polylet-<service>` and `<service>.sock`.
    pub service: &'static str,
    /// Version of the crate: `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Wire packages that it serves, besides the common ones.
    #[serde(serialize_with = "with_common")]
    pub serves: &'static [Api],
    /// Peers that it calls.
    pub calls: &'static [Dependency],
    /// Files that outlive the process.
    pub state_files: &'static [StateFileDecl],
    /// Tasks that run in child processes of the service.
    #[serde(skip)]
    pub subprocesses: &'static [SubprocessEntry],
}

/// A served wire package.
#[derive(Debug, Serialize)]
pub struct Api {
    /// For example `polylet.pleg.v1`.
    pub package: &'static str,
    /// Its level in [`levels`], which grows with every addition.
    pub level: u32,
}

/// A wire package that this service needs from a peer.
#[derive(Debug, Serialize)]
pub struct Dependency {
    /// The peer, for example `pod-config`.
    pub service: &'static str,
    /// The package, for example `polylet.podconfig.v1`.
    pub package: &'static str,
    /// The lowest sufficient level: that of [`levels`], with which the caller was compiled.
    pub level: u32,
}

/// A file of state.
#[derive(Debug, Serialize)]
pub struct StateFileDecl {
    /// `run:` or `state:` and the path below the service's directory there, or `root:` and the path
    /// below the root directory.
    pub path: &'static str,
    /// Content, and why it cannot be recovered from elsewhere.
    pub description: &'static str,
    /// Versions of its format; `None` for a format that others define.
    pub format: Option<StateFormat>,
}

/// Versions of the format of a state file. An upgrade compares those of both programs.
#[derive(Debug, Serialize)]
pub struct StateFormat {
    /// The version that is written.
    pub written: u32,
    /// The oldest version that is read; all up to the written one are.
    pub oldest_read: u32,
}

impl StateFormat {
    /// A format that is read at the version alone that is written.
    pub const fn only(version: u32) -> StateFormat {
        StateFormat {
            written: version,
            oldest_read: version,
        }
    }
}

/// What every service serves, through this crate.
pub(crate) const COMMON_APIS: &[Api] = &[
    Api {
        package: "polylet.lifecycle.v1",
        level: levels::LIFECYCLE,
    },
    Api {
        package: "polylet.notice.v1",
        level: levels::NOTICE,
    },
];

/// Own packages together with the common ones.
fn with_common<S: Serializer>(own: &[Api], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(own.iter().chain(COMMON_APIS))
}

impl ServiceDescriptor {
    /// The descriptor as JSON, for `--descriptor`.
    pub fn to_json(&self) -> String {
        // Plain strings and numbers: encoding cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
