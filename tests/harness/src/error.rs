use std::path::PathBuf;

/// What can go wrong while a node is put together.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum HarnessError {
    #[error(
        "this needs root: it makes cgroups, mounts and a bridge. Run it as root, or with `sudo -E env PATH=\"$PATH\"` before it"
    )]
    NotRoot,
    #[error(
        "there is no apt-get here, and these are missing: {missing}. Install them by hand (Debian's names), or run this on Debian or Ubuntu"
    )]
    NoApt { missing: String },
    #[error("the architecture {arch} is not supported: x86_64 and aarch64 are")]
    Architecture { arch: String },
    #[error("apt-get {what} failed ({status}): {tail}")]
    Apt {
        what: String,
        status: String,
        tail: String,
    },
    #[error("{program} is still missing after the package {package} was installed")]
    StillMissing { program: String, package: String },
    #[error("containerd 2.x comes from a Debian mirror, and apt knows of none here")]
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
    #[error("port {port} on {address} is in use: end what listens there, or choose another port")]
    PortInUse { address: String, port: u16 },
    #[error("cannot {what} {}", path.display())]
    File {
        what: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("cannot make an image from {}: it is not a static program", path.display())]
    NotStatic { path: PathBuf },
    #[error("no free /24 network below 10.201.0.0/16 to 10.249.0.0/16")]
    NoSubnet,
    #[error("polylet is not built at {}: run `cargo build --release --workspace --bins` first", path.display())]
    NotBuilt { path: PathBuf },
    #[error("{program} ended while it was being started ({status}); the end of its log:\n{log}")]
    Ended {
        program: &'static str,
        status: String,
        log: String,
    },
    #[error("{what} did not come within {seconds} s; last seen: {last}")]
    Patience {
        what: String,
        seconds: u64,
        last: String,
    },
    #[error("{call} failed")]
    Call {
        call: &'static str,
        source: Box<tonic::Status>,
    },
    #[error("cannot reach {socket}")]
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
    #[error("cannot write {what} as YAML")]
    Yaml {
        what: &'static str,
        source: serde_yaml_ng::Error,
    },
    #[error("cannot make {what}")]
    Certificate {
        what: &'static str,
        source: rcgen::Error,
    },
    #[error("cannot use {what} for TLS")]
    Tls {
        what: &'static str,
        source: rustls::Error,
    },
    #[error("service {name} has no process")]
    NoService { name: String },
    #[error(
        "Go is needed once, to build a Kubernetes cluster from tests/controlplane ({}). Install Debian's golang-go (1.21 or newer, which fetches the newer one by itself: Debian 13, or bookworm-backports), or set KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl",
        found.as_deref().map_or_else(|| "there is none".to_owned(), |found| format!("found {found}, too old"))
    )]
    NoGo { found: Option<String> },
    #[error("a cluster has no program {name}")]
    NoProgram { name: String },
    #[error("the API server refused {request} ({code}): {message}")]
    Api {
        request: String,
        code: u16,
        message: String,
    },
    #[error("HTTP to {address}: {why}")]
    Http { address: String, why: String },
    #[error("these were left behind: {}", left.join("; "))]
    LeftBehind { left: Vec<String> },
}

/// The error and its causes in one line.
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

/// Names the file operation that failed.
pub(crate) fn file<T>(
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
