//! `polylet trace report`: a page about many traces.

use std::cmp::Reverse;

use polylet_trace::Trace;
use polylet_trace::format::html;

use super::new_file::NewFile;
use super::source::TraceInput;
use crate::args::trace::ReportArgs;
use crate::client::ClientError;

/// How many of the slowest traces are drawn.
const DRAWN: usize = 10;

/// Writes the page. Summaries are kept for longer than spans, so that it is about more traces than it can draw.
pub(super) async fn report(source: &TraceInput<'_>, args: &ReportArgs) -> Result<(), ClientError> {
    let filter = args.select.filter.filter();
    let summaries = source.some_summaries(&filter).await?;
    let (traces, _) = source.traces(&filter).await?;
    let title = format!(
        "{} traces of {}",
        summaries.len(),
        args.select.filter.root()
    );
    let mut file = NewFile::create(&args.file)?;
    file.write(|to| html::report(&title, &summaries, &slowest(traces), to))?;
    file.finish()
}

fn slowest(mut traces: Vec<Trace>) -> Vec<Trace> {
    traces.sort_by_cached_key(|trace| {
        let duration = trace.summary().map(|summary| summary.duration);
        (Reverse(duration), trace.id)
    });
    traces.truncate(DRAWN);
    traces
}
