use std::path::PathBuf;

/// Errors of the harness.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum HarnessError {
    #[error(
        "root is required for cgroups, mounts and a bridge. Run as root, or with `sudo -E env PATH=\"$PATH\"`"
    )]
    NotRoot,
    #[error(
        "missing packages: {missing}; apt-get not found. Install them manually (Debian package names), or use Debian or Ubuntu"
    )]
    NoApt { missing: String },
    #[error("unsupported architecture {arch}; supported are x86_64 and aarch64")]
    Architecture { arch: String },
    #[error("apt-get {what} failed ({status}): {tail}")]
    Apt {
        what: String,
        status: String,
        tail: String,
    },
    #[error("{program} not found after the installation of package {package}")]
    StillMissing { program: String, package: String },
    #[error("containerd 2.x requires a Debian mirror, and none is configured for apt")]
    NoDebianMirror,
    #[error("cannot run {program}")]
    Run {
        program: String,
        source: std::io::Error,
    },
    #[error("{program} failed ({status}): {output}")]
    Failed {
        program: String,
        status: String,
        output: String,
    },
    #[error(
        "port {port} on {address} is in use; stop the process that listens on it, or choose another port"
    )]
    PortInUse { address: String, port: u16 },
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} exists: a node with standard paths must be the machine's only one", path.display())]
    OtherNode { path: PathBuf },
    #[error("cannot create an image from {}: not a statically linked program", path.display())]
    NotStatic { path: PathBuf },
    #[error("no free /22 network from 10.201.0.0/16 to 10.249.0.0/16")]
    NoSubnet,
    #[error("polylet not found at {}; run `cargo build --release --workspace --bins` first", path.display())]
    NotBuilt { path: PathBuf },
    #[error("{program} exited during startup ({status}); end of its log:\n{log}")]
    ExitedEarly {
        program: &'static str,
        status: String,
        log: String,
    },
    #[error("timed out after {seconds} s waiting for {what}; last seen: {last}")]
    Timeout {
        what: String,
        seconds: u64,
        last: String,
    },
    #[error("{call} failed")]
    Call {
        call: &'static str,
        source: Box<tonic::Status>,
    },
    #[error("cannot connect to {socket}")]
    Connect {
        socket: String,
        source: tonic::transport::Error,
    },
    #[error("cannot read {what} from {from}")]
    Json {
        what: &'static str,
        from: String,
        source: serde_json::Error,
    },
    #[error("cannot serialize {what} as YAML")]
    Yaml {
        what: &'static str,
        source: serde_yaml_ng::Error,
    },
    #[error("cannot create {what}")]
    Certificate {
        what: &'static str,
        source: rcgen::Error,
    },
    #[error("cannot use {what} for TLS")]
    Tls {
        what: &'static str,
        source: rustls::Error,
    },
    #[error("service {name} is not running")]
    NoService { name: String },
    #[error(
        "Go is required to build the control plane in tests/controlplane ({}). Install Debian's golang-go (1.21 or newer, which downloads the required toolchain: Debian 13, or bookworm-backports), or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl",
        found.as_deref().map_or_else(|| "go not found".to_owned(), |found| format!("found {found}, too old"))
    )]
    NoGo { found: Option<String> },
    #[error("{hint}")]
    NoPreviousVersion {
        hint: &'static str,
        source: Box<HarnessError>,
    },
    #[error("unknown control plane program {name}")]
    NoProgram { name: String },
    #[error("API server rejected {request} ({code}): {message}")]
    Api {
        request: String,
        code: u16,
        message: String,
    },
    #[error("HTTP to {address}: {why}")]
    Http { address: String, why: String },
    #[error("failed to remove: {}", left.join("; "))]
    Leftover { left: Vec<String> },
}

/// The error and its sources on one line.
pub fn report(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Adds operation and path to an I/O error.
///
/// # Errors
/// Fails if `result` is an error.
pub fn file<T>(
    what: &'static str,
    path: impl Into<PathBuf>,
    result: std::io::Result<T>,
) -> Result<T, HarnessError> {
    result.map_err(|source| HarnessError::File {
        what,
        path: path.into(),
        source,
    })
}
