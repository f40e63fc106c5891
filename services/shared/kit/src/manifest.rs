use serde::Serialize;

/// What a service is, in data: printed by `--manifest`, told by `GetInfo`, checked by tests.
#[derive(Debug, Serialize)]
pub struct Manifest {
    /// Short name, as in `polylet-<service>` and `<service>.sock`.
    pub service: &'static str,
    /// Of the crate: `env!("CARGO_PKG_VERSION")`.
    pub version: &'static str,
    /// One line for people.
    pub about: &'static str,
    /// Wire packages that it serves.
    pub serves: &'static [Api],
    /// Peers that it calls.
    pub calls: &'static [Call],
    /// Files that outlive the process.
    pub keeps: &'static [Keep],
}

/// A served package and how far its additions go.
#[derive(Debug, Serialize)]
pub struct Api {
    /// For example `polylet.pleg.v1`.
    pub package: &'static str,
    /// Raised by one with every addition.
    pub level: u32,
}

/// A package that this service needs from a peer.
#[derive(Debug, Serialize)]
pub struct Call {
    /// The peer, for example `pod-config`.
    pub service: &'static str,
    /// The package, for example `polylet.podconfig.v1`.
    pub package: &'static str,
    /// The least level that will do.
    pub level: u32,
}

/// Something kept on disk.
#[derive(Debug, Serialize)]
pub struct Keep {
    /// `run:` or `state:` and the path below the service's directory there, or `root:` and the path
    /// below the root directory.
    pub path: &'static str,
    /// What is in it and why it cannot be read back from elsewhere.
    pub what: &'static str,
}

impl Manifest {
    /// The manifest as JSON, for `--manifest`.
    pub fn to_json(&self) -> String {
        // Plain strings and numbers: nothing in it can fail to be written.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
