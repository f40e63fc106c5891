//! Arguments of commands that print something.

pub(crate) mod trace;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use polylet_kit::config;
use trace::FailOn;

/// The format of command output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable tables
    Text,
    /// A JSON document
    Json,
}

/// Arguments of `polylet profile`.
#[derive(Args)]
pub(crate) struct ProfileArgs {
    /// The service, such as pleg, or supervisor
    pub(crate) service: String,
    /// How long to sample, in seconds
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) seconds: u64,
    /// Sample allocations of memory instead of processor time
    #[arg(long)]
    pub(crate) heap: bool,
    /// The file to write, or - for standard output; SERVICE-cpu.pb.gz or SERVICE-heap.pb.gz unless given
    #[arg(long, short, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// Arguments of `polylet upgrade`.
#[derive(Args)]
pub(crate) struct UpgradeArgs {
    /// The service to upgrade, such as pleg, or supervisor
    #[arg(required_unless_present = "all")]
    pub(crate) service: Option<String>,
    /// Upgrade all services, callees first, and the supervisor last
    #[arg(long, conflicts_with = "service")]
    pub(crate) all: bool,
    /// The new program; with --all, a directory with all programs, polylet included
    #[arg(long, value_name = "PATH")]
    pub(crate) to: PathBuf,
    /// Only check whether the programs are compatible with those that run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How long each new process may take to be in step with its peers, before it is rolled back
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = config::parse_duration)]
    pub(crate) timeout: Duration,
    /// Upgrade even if the present program cannot read state files of the new one: there is no way back
    #[arg(long)]
    pub(crate) one_way: bool,
    /// Then wait for so many starts of pods, and compare them with the last ones before
    #[arg(long, value_name = "COUNT", conflicts_with = "dry_run", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) watch_starts: Option<u16>,
    /// How long to wait for them; what has started until then is compared
    #[arg(long, value_name = "DURATION", default_value = "10m", requires = "watch_starts", value_parser = config::parse_duration)]
    pub(crate) watch_for: Duration,
    /// Roll back and end with exit code 2 if the comparison has this verdict
    #[arg(long, value_enum, requires = "watch_starts")]
    pub(crate) fail_on: Option<FailOn>,
}

/// Arguments of `polylet rollback`.
#[derive(Args)]
pub(crate) struct RollbackArgs {
    /// The service to roll back, or supervisor
    #[arg(required_unless_present = "all")]
    pub(crate) service: Option<String>,
    /// Roll back all that were upgraded, the supervisor first, then the services, callers first
    #[arg(long, conflicts_with = "service")]
    pub(crate) all: bool,
    /// Only check whether the programs are compatible with those that run
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// How long each process may take to be in step with its peers
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = config::parse_duration)]
    pub(crate) timeout: Duration,
}

/// Arguments of `polylet logs`.
#[derive(Args)]
pub(crate) struct LogArgs {
    /// Name, namespace/name or uid of the pod
    pub(crate) pod: String,
    /// Container of the pod
    #[arg(short, long)]
    pub(crate) container: Option<String>,
    /// Stream the logs until the container exits
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Print the logs of the previous instance of the container
    #[arg(short, long)]
    pub(crate) previous: bool,
    /// Number of most recent lines to print
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<u64>,
    /// Only print lines newer than a relative duration like 5s, 2m, or 3h
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    pub(crate) since: Option<std::time::Duration>,
    /// Print a timestamp before each line
    #[arg(long)]
    pub(crate) timestamps: bool,
}
