//! `polylet trace record`: traces into a file, which appears when it is complete.

use std::path::Path;

use polylet_kit::Config;
use polylet_trace::format::otlp_json;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::live::LiveTraces;
use super::new_file::NewFile;
use crate::args::OutputFormat;
use crate::args::trace::RecordArgs;
use crate::client::ClientError;
use crate::show;

/// Records traces until a limit or a signal.
pub(super) async fn record(
    config: &Config,
    args: RecordArgs,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let signals = |kind| signal(kind).map_err(ClientError::Runtime);
    let mut interrupt = signals(SignalKind::interrupt())?;
    let mut terminate = signals(SignalKind::terminate())?;
    let mut traces = LiveTraces::start(config, args.filter.filter()).await?;
    let mut recording = NewFile::create(&args.file)?;
    let deadline = args.duration.map(|duration| Instant::now() + duration);
    if output == OutputFormat::Text {
        eprintln!("recording; Ctrl-C ends it");
    }
    let (mut recorded, mut missed) = (0_u64, 0_u64);
    while args.starts.is_none_or(|limit| recorded < limit) {
        let next = tokio::select! {
            next = traces.next() => next,
            () = end(deadline, &mut interrupt, &mut terminate) => break,
        };
        match next {
            Ok((_, Some(trace))) => {
                recording.write(|to| otlp_json::write(&[trace], to))?;
                recorded += 1;
            }
            Ok((_, None)) => missed += 1,
            // What was recorded counts.
            Err(error) if recorded > 0 => {
                eprintln!("polylet: recording ended: {}", polylet_kit::report(&error));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    if recorded == 0 {
        let file = args.file.display();
        let message = format!("no trace ended meanwhile; {file} was not written");
        return Err(ClientError::NotFound(message));
    }
    recording.finish()?;
    print_result(&args.file, recorded, missed, output);
    Ok(())
}

/// Resolves at the deadline or a signal.
async fn end(deadline: Option<Instant>, interrupt: &mut Signal, terminate: &mut Signal) {
    tokio::select! {
        () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn print_result(file: &Path, recorded: u64, missed: u64, output: OutputFormat) {
    let file = file.display().to_string();
    if output == OutputFormat::Json {
        show::json(&json!({ "file": file, "traces": recorded, "missed": missed }));
        return;
    }
    let missed = match missed {
        0 => String::new(),
        missed => format!("; the spans of {missed} more were dropped before"),
    };
    super::print(&format!("{recorded} traces in {file}{missed}\n"));
}
