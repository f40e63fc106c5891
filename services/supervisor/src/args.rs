//! Arguments of commands that print something.

use clap::{Args, ValueEnum};
use polylet_kit::config;

/// The format of command output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Human-readable tables
    Text,
    /// A JSON document
    Json,
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
