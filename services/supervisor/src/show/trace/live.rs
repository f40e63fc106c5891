//! Traces as they end, and `polylet trace follow`.

use std::collections::VecDeque;
use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::Config;
use polylet_trace::{Trace, TraceFilter, TraceId, TraceSummary};
use polylet_wire::supervisor::v1 as wire;
use tonic::Streaming;

use super::source::supervisor;
use crate::args::OutputFormat;
use crate::client::{self, ClientError};
use crate::core::trace_list::{summary_as_json, trace_line};
use crate::traces::{convert, summary_convert};

/// How long the supervisor may be away, as while its program is replaced.
const RECONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The delay before a connection is tried again.
const RECONNECT_DELAY: Duration = Duration::from_millis(250);
/// How many of the last traces are known, in case a new connection repeats them.
const MAX_SEEN: usize = 256;

/// The traces that a filter selects, as they end.
pub(in crate::show) struct LiveTraces<'a> {
    config: &'a Config,
    filter: TraceFilter,
    stream: Streaming<wire::GetTracesResponse>,
    /// The end of the last trace, or when the first connection was made.
    last_end: Timestamp,
    seen: VecDeque<TraceId>,
}

impl<'a> LiveTraces<'a> {
    /// Begins with the next trace that ends, unless the filter has a beginning.
    pub(in crate::show) async fn start(
        config: &'a Config,
        filter: TraceFilter,
    ) -> Result<LiveTraces<'a>, ClientError> {
        Ok(LiveTraces {
            config,
            stream: connect(config, &filter).await?,
            filter,
            last_end: Timestamp::now(),
            seen: VecDeque::new(),
        })
    }

    /// The next trace, with its spans unless they were dropped. Survives a restart of the supervisor's program.
    pub(in crate::show) async fn next(
        &mut self,
    ) -> Result<(TraceSummary, Option<Trace>), ClientError> {
        loop {
            // An end and an error mean the same: the process stops, or its program is replaced.
            let Ok(Some(response)) = self.stream.message().await else {
                self.reconnect().await?;
                continue;
            };
            let summary = response.trace.and_then(summary_convert::from_wire_summary);
            let Some(summary) = summary.filter(|summary| !self.seen.contains(&summary.id)) else {
                continue;
            };
            if self.seen.len() >= MAX_SEEN {
                self.seen.pop_front();
            }
            self.seen.push_back(summary.id);
            self.last_end = self.last_end.max(summary.end());
            let has_spans = !response.spans.is_empty();
            let trace = has_spans.then(|| convert::trace_from_wire(summary.id, response.spans));
            return Ok((summary, trace));
        }
    }

    async fn reconnect(&mut self) -> Result<(), ClientError> {
        let filter = TraceFilter {
            since: Some(self.last_end),
            ..self.filter.clone()
        };
        let deadline = tokio::time::Instant::now() + RECONNECT_TIMEOUT;
        loop {
            match connect(self.config, &filter).await {
                Ok(stream) => {
                    self.stream = stream;
                    return Ok(());
                }
                Err(error) if tokio::time::Instant::now() >= deadline => return Err(error),
                Err(_) => tokio::time::sleep(RECONNECT_DELAY).await,
            }
        }
    }
}

async fn connect(
    config: &Config,
    filter: &TraceFilter,
) -> Result<Streaming<wire::GetTracesResponse>, ClientError> {
    let mut supervisor = supervisor(config)?;
    let request = wire::GetTracesRequest {
        filter: Some(summary_convert::filter_to_wire(filter)),
        follow: true,
    };
    client::call("supervisor", supervisor.get_traces(request)).await
}

/// Prints a line for each trace as it ends, until the reader of the output is gone.
pub(super) async fn follow(
    config: &Config,
    filter: TraceFilter,
    output: OutputFormat,
) -> Result<(), ClientError> {
    let mut traces = LiveTraces::start(config, filter).await?;
    loop {
        let (summary, _) = traces.next().await?;
        let line = match output {
            OutputFormat::Json => format!("{}\n", summary_as_json(&summary)),
            OutputFormat::Text => super::printable(&trace_line(&summary)),
        };
        let mut out = std::io::stdout().lock();
        if out
            .write_all(line.as_bytes())
            .and_then(|()| out.flush())
            .is_err()
        {
            return Ok(());
        }
    }
}
