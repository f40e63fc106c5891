//! Arguments of `polylet trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use polylet_kit::cause::root;
use polylet_kit::config;
use polylet_trace::{StepChange, StepGrouping, TraceFilter};

/// What `--root` names for traces of all roots.
const ALL_ROOTS: &str = "all";

/// Arguments of `polylet trace`.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true
)]
pub(crate) struct TraceArgs {
    /// Name, namespace/name or uid of the pod, or a trace ID; namespace/name if the name is that of a command
    #[arg(required = true)]
    pub(crate) pod: Option<String>,
    #[command(flatten)]
    pub(crate) files: FileArgs,
    #[command(subcommand)]
    pub(crate) command: Option<TraceCommand>,
}

/// Commands over many traces.
#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// List traces that have ended, the latest last
    List(SelectArgs),
    /// Show which steps took the time of many traces
    Top(TopArgs),
    /// Show which steps of a pod's start took longer than in others of its shape
    Why(WhyArgs),
    /// Print a line for each trace as it ends
    Follow(FilterArgs),
    /// Write each trace that ends to a file, until Ctrl-C or a limit
    Record(RecordArgs),
    /// Compare two sets of traces step by step; exit code 2 if --fail-on applies
    Diff(DiffArgs),
    /// Write traces in the format of another tool
    Export(ExportArgs),
    /// Write a page for a browser about many traces: steps, their histograms, times of day, the slowest traces
    Report(ReportArgs),
}

/// Where traces are read from.
#[derive(Args, Default)]
pub(crate) struct FileArgs {
    /// Read traces from files with lines of OTLP JSON, not from this node
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) from: Vec<PathBuf>,
}

/// Which traces are meant.
#[derive(Args)]
pub(crate) struct FilterArgs {
    /// Only traces that ended then or later: a time, or an age such as 5m
    #[arg(long, value_name = "TIME", value_parser = time)]
    since: Option<Timestamp>,
    /// Only traces that ended before: a time, or an age such as 5m
    #[arg(long, value_name = "TIME", value_parser = time)]
    until: Option<Timestamp>,
    /// Only traces of pods in a namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only traces of a root, such as pod.delete; or all
    #[arg(long, default_value = root::POD_START)]
    root: String,
    /// Only traces of a shape, such as "1 container, probes"
    #[arg(long)]
    shape: Option<String>,
    /// Only traces that ended so: ready, succeeded, failed, removed, incomplete
    #[arg(long)]
    outcome: Option<String>,
    /// Only traces that lasted longer
    #[arg(long, value_name = "DURATION", value_parser = config::parse_duration)]
    slower_than: Option<Duration>,
    /// Only traces in which a service, the runtime (such as containerd=2.1.9) or the kernel had a version
    #[arg(long, value_name = "SERVICE=VERSION", value_parser = version)]
    version: Vec<(String, String)>,
}

/// Which traces are meant, and where they are read from.
#[derive(Args)]
pub(crate) struct SelectArgs {
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
    #[command(flatten)]
    pub(crate) files: FileArgs,
}

/// Arguments of `polylet trace top`.
#[derive(Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    /// What time is summed up by
    #[arg(long, value_enum, default_value_t = GroupBy::Step)]
    pub(crate) by: GroupBy,
    /// How long traces would last if a step took less or more time, such as cri.RunPodSandbox=-50ms
    #[arg(long, value_name = "STEP=CHANGE", value_parser = change, allow_hyphen_values = true)]
    pub(crate) what_if: Vec<StepChange>,
}

/// What time is summed up by.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GroupBy {
    /// Operations of services
    Step,
    /// The services that recorded them
    Service,
    /// Whose time it is: polylet, runtime, api, registry, storage, workload
    Owner,
    /// Whole traces, by their shapes
    Shape,
    /// Whole traces, by the versions of services, container runtime and kernel that are not the same in all
    Version,
}

/// Arguments of `polylet trace why`.
#[derive(Args)]
pub(crate) struct WhyArgs {
    /// Name, namespace/name or uid of the pod, or a trace ID
    pub(crate) pod: String,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
}

/// Arguments of `polylet trace record`.
#[derive(Args)]
pub(crate) struct RecordArgs {
    /// The file, which is replaced at the end
    pub(crate) file: PathBuf,
    /// End after so many traces
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) starts: Option<u64>,
    /// End after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = config::parse_duration)]
    pub(crate) duration: Option<Duration>,
    #[command(flatten)]
    pub(crate) filter: FilterArgs,
}

/// Arguments of `polylet trace diff`.
#[derive(Args)]
pub(crate) struct DiffArgs {
    /// A file of traces, SINCE..UNTIL, or SERVICE=VERSION
    #[arg(value_parser = trace_set)]
    pub(crate) a: TraceSet,
    /// The same for the set that A is compared with
    #[arg(value_parser = trace_set)]
    pub(crate) b: TraceSet,
    /// End with exit code 2 if the total or a step has this verdict
    #[arg(long, value_enum)]
    pub(crate) fail_on: Option<FailOn>,
    /// Write the comparison as a page for a browser, too
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
}

/// A set of traces to compare.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TraceSet {
    /// As it was given.
    pub(crate) name: String,
    /// What it means.
    pub(crate) kind: TraceSetKind,
}

/// Which traces a set has.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum TraceSetKind {
    /// Those of a file.
    File(PathBuf),
    /// Those that ended within a time.
    Window {
        /// The beginning, unless it is open.
        since: Option<Timestamp>,
        /// The end, unless it is open.
        until: Option<Timestamp>,
    },
    /// Those in which a service ran in a version.
    Version {
        /// The service.
        service: String,
        /// Its version.
        version: String,
    },
}

/// A verdict that is a failure.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum FailOn {
    /// The second set is slower
    Slower,
}

/// Arguments of `polylet trace export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// The format
    #[arg(value_enum)]
    pub(crate) format: ExportFormat,
    /// Name, namespace/name or uid of a pod, or a trace ID; all traces that match the filters without it
    pub(crate) pod: Option<String>,
    /// The file, which is replaced when it is complete; standard output without it
    #[arg(long, value_name = "FILE")]
    pub(crate) to: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
}

/// Arguments of `polylet trace report`.
#[derive(Args)]
pub(crate) struct ReportArgs {
    /// The HTML file, which is replaced when it is complete
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) select: SelectArgs,
}

/// A format of another tool.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// Lines of OpenTelemetry's JSON, as collectors write and read them
    OtlpJson,
    /// Perfetto's protocol buffers, for ui.perfetto.dev
    Perfetto,
    /// Chrome's JSON, for chrome://tracing and speedscope
    Chrome,
    /// Stacks with their microseconds, for flame graphs
    Folded,
    /// A drawing of one trace
    Svg,
}

impl FilterArgs {
    /// The root of the traces, or `all`.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The filter that these arguments mean.
    pub(crate) fn filter(&self) -> TraceFilter {
        TraceFilter {
            since: self.since,
            until: self.until,
            namespace: self.namespace.clone(),
            root: (self.root != ALL_ROOTS).then(|| self.root.clone()),
            shape: self.shape.clone(),
            outcome: self.outcome.clone(),
            slower_than: self.slower_than,
            versions: self.version.iter().cloned().collect(),
        }
    }
}

impl GroupBy {
    /// The grouping that it means.
    pub(crate) fn grouping(self) -> StepGrouping {
        match self {
            GroupBy::Step => StepGrouping::Step,
            GroupBy::Service => StepGrouping::Service,
            GroupBy::Owner => StepGrouping::Owner,
            GroupBy::Shape => StepGrouping::Shape,
            GroupBy::Version => StepGrouping::Version,
        }
    }
}

/// A time, or how long ago it was.
fn time(text: &str) -> Result<Timestamp, String> {
    if let Ok(age) = config::parse_duration(text) {
        let then = Timestamp::now().checked_sub(age);
        return then.map_err(|_| "longer ago than times go back".to_owned());
    }
    let expected = "expected a time such as 2026-01-31T12:00:00Z, or an age such as 5m";
    text.parse().map_err(|_| expected.to_owned())
}

/// A file, a time or a version. What exists as a file is one.
fn trace_set(text: &str) -> Result<TraceSet, String> {
    let path = PathBuf::from(text);
    let kind = if path.exists() {
        TraceSetKind::File(path)
    } else if let Some((since, until)) = text.split_once("..") {
        let bound = |text: &str| match text {
            "" => Ok(None),
            text => time(text).map(Some),
        };
        let (since, until) = (bound(since)?, bound(until)?);
        TraceSetKind::Window { since, until }
    } else if let Ok((service, version)) = version(text) {
        TraceSetKind::Version { service, version }
    } else {
        TraceSetKind::File(path)
    };
    Ok(TraceSet {
        name: text.to_owned(),
        kind,
    })
}

fn version(text: &str) -> Result<(String, String), String> {
    let expected = "expected SERVICE=VERSION, such as pleg=0.1.0";
    let (service, version) = text.split_once('=').ok_or(expected)?;
    let service = service.strip_prefix("polylet-").unwrap_or(service);
    if service.is_empty() || version.is_empty() {
        return Err(expected.to_owned());
    }
    Ok((service.to_owned(), version.to_owned()))
}

fn change(text: &str) -> Result<StepChange, String> {
    let expected = "expected STEP=CHANGE, such as cri.RunPodSandbox=-50ms";
    let (step, change) = text.rsplit_once('=').ok_or(expected)?;
    let (is_faster, by) = match change.strip_prefix('-') {
        Some(by) => (true, by),
        None => (false, change.strip_prefix('+').unwrap_or(change)),
    };
    if step.is_empty() {
        return Err(expected.to_owned());
    }
    Ok(StepChange {
        step: step.to_owned(),
        is_faster,
        by: config::parse_duration(by).map_err(|_| expected)?,
    })
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
