use std::path::PathBuf;

use polylet_harness::HarnessError;

/// Errors of the virtual machine.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum VmError {
    #[error(transparent)]
    Harness(#[from] HarnessError),
    #[error("the virtual machine needs an x86_64 host")]
    Architecture,
    #[error("no kernel in {}", dir.display())]
    NoKernel { dir: PathBuf },
    #[error("{path} is not a file system of programs: {why}", path = path.display())]
    Programs { path: PathBuf, why: &'static str },
    #[error("QEMU exited ({status}); end of its output:\n{output}")]
    QemuExited { status: String, output: String },
    #[error("the machine did not boot within {seconds} s; end of its console:\n{console}")]
    NotBooted { seconds: u64, console: String },
    #[error("the machine is not running")]
    NotRunning,
    #[error("the connection to the machine's agent broke")]
    AgentGone,
    #[error("cannot exchange messages with the machine's agent")]
    Agent { source: std::io::Error },
    #[error("`{command}` still ran in the machine after {seconds} s; its output:\n{output}")]
    CommandTimeout {
        command: String,
        seconds: u64,
        output: String,
    },
    #[error("`{command}` failed in the machine ({status}); its output:\n{output}")]
    CommandFailed {
        command: String,
        status: String,
        output: String,
    },
    #[error("cannot read the output of `{command}` in the machine")]
    CommandOutput {
        command: String,
        source: serde_json::Error,
    },
    #[error("timed out after {seconds} s waiting for {what}; last seen: {last}")]
    Timeout {
        what: String,
        seconds: u64,
        last: String,
    },
}
