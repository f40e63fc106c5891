//! Where traces come from: this node's supervisor, or files.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::{Config, report};
use polylet_trace::format::otlp_json::{self, OtlpJsonError};
use polylet_trace::{Trace, TraceFilter, TraceSummary, parse_trace_id};
use polylet_wire::supervisor::v1 as wire;
use polylet_wire::supervisor::v1::supervisor_service_client::SupervisorServiceClient;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::client::{self, ClientError};
use crate::core::trace_root::root_of;
use crate::traces::{convert, summary_convert};

/// How long the next of many traces may take.
const NEXT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long after their ends spans are at the supervisor: services collect them for a second.
const SPANS_ARRIVE_WITHIN: Duration = Duration::from_millis(1_500);

/// Where traces come from.
pub(in crate::show) enum TraceInput<'a> {
    /// This node's supervisor.
    Node(&'a Config),
    /// Files that were recorded or exported.
    Files {
        /// In the order of their ends.
        traces: Vec<(TraceSummary, Trace)>,
        /// The first line that could not be read.
        invalid: Option<InvalidLines>,
    },
}

/// Lines that could not be read.
pub(in crate::show) struct InvalidLines {
    first: String,
    others: usize,
}

impl InvalidLines {
    fn add(invalid: &mut Option<InvalidLines>, message: String) {
        match invalid {
            Some(lines) => lines.others += 1,
            None => {
                *invalid = Some(InvalidLines {
                    first: message,
                    others: 0,
                });
            }
        }
    }
}

impl<'a> TraceInput<'a> {
    /// The files, or this node if there are none.
    pub(in crate::show) fn open(
        config: &'a Config,
        files: &[PathBuf],
    ) -> Result<Self, ClientError> {
        if files.is_empty() {
            return Ok(TraceInput::Node(config));
        }
        let mut invalid = None;
        let mut traces = Vec::new();
        for file in files {
            let mut on_error = |error: OtlpJsonError| {
                let message = format!("{}:{}", file.display(), report(&error));
                InvalidLines::add(&mut invalid, message);
            };
            traces.extend(otlp_json::read(open(file)?, &mut on_error));
        }
        let summarized = |mut trace: Trace| {
            if trace.root().is_none() {
                // Whatever recorded it knows no roots that are derived.
                trace.spans.extend(root_of(trace.id, &trace.spans));
            }
            Some((trace.summary()?, trace))
        };
        let mut traces: Vec<_> = traces.into_iter().filter_map(summarized).collect();
        traces.sort_by_key(|(summary, _)| (summary.end(), summary.id));
        Ok(TraceInput::Files { traces, invalid })
    }

    /// The result of a command; an error if a line could not be read, although the rest counted.
    pub(super) fn finish(&mut self, result: Result<(), ClientError>) -> Result<(), ClientError> {
        self.take_invalid().map_or(result, Err)
    }

    /// The error of the lines that could not be read, once.
    pub(super) fn take_invalid(&mut self) -> Option<ClientError> {
        let TraceInput::Files { invalid, .. } = self else {
            return None;
        };
        let InvalidLines { first, others } = invalid.take()?;
        Some(ClientError::InvalidData(match others {
            0 => super::printable(&first),
            others => super::printable(&format!("{first} (and {others} more lines)")),
        }))
    }

    /// The summaries that a filter selects, in the order of the traces' ends.
    pub(in crate::show) async fn summaries(
        &self,
        filter: &TraceFilter,
    ) -> Result<Vec<TraceSummary>, ClientError> {
        let config = match self {
            TraceInput::Node(config) => config,
            TraceInput::Files { traces, .. } => {
                let summaries = traces.iter().map(|(summary, _)| summary);
                let selected = summaries.filter(|summary| filter.selects(summary));
                return Ok(selected.cloned().collect());
            }
        };
        let mut supervisor = supervisor(config)?;
        let request = wire::ListTracesRequest {
            filter: Some(summary_convert::filter_to_wire(filter)),
            follow: false,
        };
        let stream = client::call("supervisor", supervisor.list_traces(request));
        let mut stream = stream.await?;
        let mut summaries = Vec::new();
        while let Some(response) = next(&mut stream).await? {
            let summary = response.trace;
            summaries.extend(summary.and_then(summary_convert::from_wire_summary));
        }
        // They come in the order in which their ends were noticed.
        summaries.sort_by_key(|summary| (summary.end(), summary.id));
        Ok(summaries)
    }

    /// Like [`TraceInput::summaries`]; an error with the reason if there are none.
    pub(super) async fn some_summaries(
        &self,
        filter: &TraceFilter,
    ) -> Result<Vec<TraceSummary>, ClientError> {
        let summaries = self.summaries(filter).await?;
        if summaries.is_empty() {
            return Err(self.none(filter).await);
        }
        Ok(summaries)
    }

    /// The traces that a filter selects, and how many more have no spans any longer; an error with the reason if there
    /// are none.
    pub(super) async fn traces(
        &self,
        filter: &TraceFilter,
    ) -> Result<(Vec<Trace>, usize), ClientError> {
        let config = match self {
            TraceInput::Node(config) => config,
            TraceInput::Files { traces, .. } => {
                let selected = traces.iter().filter(|(summary, _)| filter.selects(summary));
                let selected: Vec<_> = selected.map(|(_, trace)| trace.clone()).collect();
                if selected.is_empty() {
                    return Err(self.none(filter).await);
                }
                return Ok((selected, 0));
            }
        };
        let mut supervisor = supervisor(config)?;
        let request = wire::GetTracesRequest {
            filter: Some(summary_convert::filter_to_wire(filter)),
            follow: false,
        };
        let stream = client::call("supervisor", supervisor.get_traces(request));
        let mut stream = stream.await?;
        let (mut traces, mut dropped) = (Vec::new(), 0);
        while let Some(response) = next(&mut stream).await? {
            let id = response.trace.map(|trace| trace.trace_id);
            let id = id.as_deref().and_then(parse_trace_id);
            match id.filter(|_| !response.spans.is_empty()) {
                Some(id) => traces.push(convert::trace_from_wire(id, response.spans)),
                None => dropped += 1,
            }
        }
        match traces.as_slice() {
            [] if dropped == 0 => Err(self.none(filter).await),
            [] => Err(ClientError::NotFound(format!(
                "the spans of all {dropped} traces that match were dropped"
            ))),
            _ => Ok((traces, dropped)),
        }
    }

    /// Why a filter selects nothing.
    async fn none(&self, filter: &TraceFilter) -> ClientError {
        let message = match self.unknown_version(filter).await {
            Ok(Some(message)) => message,
            Ok(None) if *filter == TraceFilter::default() => "no trace has ended yet".to_owned(),
            Ok(None) => "no trace that has ended matches the filters".to_owned(),
            Err(error) => return error,
        };
        ClientError::NotFound(message)
    }

    /// A version that no trace was recorded with, and those that were seen.
    async fn unknown_version(&self, filter: &TraceFilter) -> Result<Option<String>, ClientError> {
        if filter.versions.is_empty() {
            return Ok(None);
        }
        let any = self.summaries(&TraceFilter::default()).await?;
        for (service, version) in &filter.versions {
            let of_version = TraceFilter {
                versions: [(service.clone(), version.clone())].into(),
                ..TraceFilter::default()
            };
            if any.iter().any(|trace| of_version.selects(trace)) {
                continue;
            }
            let seen = any.iter().filter_map(|trace| trace.versions.get(service));
            let seen: std::collections::BTreeSet<&str> = seen.map(String::as_str).collect();
            let seen: Vec<&str> = seen.into_iter().collect();
            let seen = match seen.as_slice() {
                [] => "none of this service was seen".to_owned(),
                seen => format!("seen are {}", seen.join(", ")),
            };
            return Ok(Some(format!("no trace with {service} {version}; {seen}")));
        }
        Ok(None)
    }

    /// A trace by its ID, or of a pod, and how many spans were dropped before.
    pub(super) async fn find(&self, query: &str) -> Result<(Trace, u64), ClientError> {
        let config = match self {
            TraceInput::Node(config) => config,
            TraceInput::Files { traces, .. } => {
                let found = find(traces.iter().map(|(summary, _)| summary), query);
                let found = found.and_then(|id| traces.iter().find(|(_, trace)| trace.id == id));
                let not_found = || ClientError::NotFound(format!("trace not found: {query}"));
                return Ok((found.ok_or_else(not_found)?.1.clone(), 0));
            }
        };
        let mut supervisor = supervisor(config)?;
        let mut get = async || {
            let request = wire::GetTraceRequest {
                query: query.to_owned(),
            };
            client::call("supervisor", supervisor.get_trace(request)).await
        };
        let found = match get().await {
            Err(ClientError::NotFound(_)) => {
                tokio::time::sleep(SPANS_ARRIVE_WITHIN).await;
                get().await?
            }
            found => found?,
        };
        let id = parse_trace_id(&found.trace_id).unwrap_or_default();
        Ok((convert::trace_from_wire(id, found.spans), found.dropped))
    }

    /// The summary of a trace by its ID, or of a pod, even if its spans were dropped.
    pub(super) async fn find_summary(&self, query: &str) -> Result<TraceSummary, ClientError> {
        let not_found = match self.find(query).await {
            Ok((trace, _)) => {
                let without_root = || ClientError::NotFound(format!("no root in trace: {query}"));
                return trace.summary().ok_or_else(without_root);
            }
            Err(error @ ClientError::NotFound(_)) => error,
            Err(error) => return Err(error),
        };
        let summaries = self.summaries(&TraceFilter::default()).await?;
        let id = find(summaries.iter(), query);
        let found = summaries.into_iter().find(|summary| Some(summary.id) == id);
        found.ok_or(not_found)
    }
}

/// The first trace, which is its start, of the latest pod with this uid, name or `namespace/name`; or a trace by its ID.
fn find<'a>(
    traces: impl Iterator<Item = &'a TraceSummary> + Clone,
    query: &str,
) -> Option<polylet_trace::TraceId> {
    let id = parse_trace_id(query);
    if let Some(trace) = traces.clone().find(|trace| Some(trace.id) == id) {
        return Some(trace.id);
    }
    let is_meant = |trace: &&TraceSummary| {
        query == trace.uid
            || query == trace.name
            || query.split_once('/') == Some((&trace.namespace, &trace.name))
    };
    let latest = traces.clone().filter(is_meant);
    let latest = latest.max_by_key(|trace| (trace.end(), trace.id))?;
    let of_pod = traces
        .filter(is_meant)
        .filter(|trace| trace.uid == latest.uid);
    let first = of_pod.min_by_key(|trace| (trace.start, trace.id));
    first.map(|trace| trace.id)
}

fn open(file: &Path) -> Result<BufReader<File>, ClientError> {
    let opened = File::open(file).and_then(|opened| match opened.metadata()?.is_dir() {
        true => Err(std::io::ErrorKind::IsADirectory.into()),
        false => Ok(opened),
    });
    let opened = opened.map_err(|error| {
        ClientError::InvalidData(super::printable(&format!("{}: {error}", file.display())))
    })?;
    Ok(BufReader::new(opened))
}

/// A client of this node's supervisor.
pub(super) fn supervisor(config: &Config) -> Result<SupervisorServiceClient<Channel>, ClientError> {
    let supervisor = SupervisorServiceClient::new(client::connect(config, "supervisor")?);
    Ok(supervisor.max_decoding_message_size(polylet_kit::MAX_MESSAGE_SIZE))
}

/// The next response of a stream.
async fn next<T>(stream: &mut Streaming<T>) -> Result<Option<T>, ClientError> {
    let no_response = |message| ClientError::NoResponse {
        service: "supervisor",
        message,
    };
    match tokio::time::timeout(NEXT_TIMEOUT, stream.message()).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(status)) => Err(no_response(status.message().to_owned())),
        Err(_) => Err(no_response(format!("timed out after {NEXT_TIMEOUT:?}"))),
    }
}
