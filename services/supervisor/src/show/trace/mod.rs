//! `polylet trace`: one trace, and commands over many.

mod diff;
mod export;
mod live;
mod many;
mod new_file;
mod pod;
mod record;
mod report;
mod source;

use polylet_kit::Config;

use crate::args::OutputFormat;
use crate::args::trace::{FileArgs, TraceArgs, TraceCommand};
use crate::client::ClientError;
pub(super) use live::LiveTraces;
pub(super) use source::TraceInput;

/// Runs `polylet trace`.
pub(crate) async fn run(
    config: &Config,
    args: TraceArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let open = |files: &FileArgs| TraceInput::open(config, &files.from);
    match args.command {
        None => {
            let mut source = open(&args.files)?;
            let pod = args.pod.unwrap_or_default();
            let shown = pod::show(&source, &pod, output).await;
            source.finish(shown)
        }
        Some(TraceCommand::List(args)) => {
            let mut source = open(&args.files)?;
            let shown = many::list(&source, &args.filter.filter(), output).await;
            source.finish(shown)
        }
        Some(TraceCommand::Top(args)) => {
            let mut source = open(&args.select.files)?;
            let shown = many::top(&source, &args, output).await;
            source.finish(shown)
        }
        Some(TraceCommand::Why(args)) => {
            let mut source = open(&args.select.files)?;
            let shown = many::why(&source, &args, output).await;
            source.finish(shown)
        }
        Some(TraceCommand::Diff(args)) => diff::diff(config, &args, output).await,
        Some(TraceCommand::Export(args)) => {
            let mut source = open(&args.select.files)?;
            let exported = export::export(&source, &args).await;
            source.finish(exported)
        }
        Some(TraceCommand::Report(args)) => {
            let mut source = open(&args.select.files)?;
            let written = report::report(&source, &args).await;
            source.finish(written)
        }
        Some(TraceCommand::Follow(args)) => live::follow(config, args.filter(), output).await,
        Some(TraceCommand::Record(args)) => record::record(config, args, output).await,
    }
}

/// Prints text that traces have a part in, whoever wrote it: without control characters. A closed pipe is no error.
fn print(text: &str) {
    super::print(&printable(text));
}

/// The same text without control characters but line breaks.
pub(super) fn printable(text: &str) -> String {
    let shown = |c: char| match c {
        '\n' => c,
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(shown).collect()
}
