//! Export of spans to a collector: which ones, and how they get there.

mod collector;
mod joined;
mod metrics;
mod queue;
mod settings;
mod tls;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use polylet_kit::config::{Config, KubeletConfiguration, TailSampling};
use polylet_kit::report;
use polylet_kit::sampling::{JOINED, TraceSampler};
use polylet_trace::{TraceId, hex, parse_trace_id};
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::core::export_sampling::{ExportSampling, HeldSpans, SpanFate, TraceEnd};
use collector::CollectorClient;
use joined::JoinedTraces;
use queue::ExportQueue;
use settings::{ExportSettings, ExportSettingsError};
use tls::CollectorTlsError;

/// Most bytes of spans that wait for the end of their trace.
const MAX_HELD: usize = 4 << 20;
/// The flags of a span that mean something outside the node: sampled, random, and whether its parent is remote.
const KNOWN_FLAGS: u32 = 0x303;

/// Why nothing is exported.
#[derive(Debug, thiserror::Error)]
enum ExporterError {
    #[error(transparent)]
    Settings(#[from] ExportSettingsError),
    #[error(transparent)]
    Tls(#[from] CollectorTlsError),
}

/// Exports spans. It never waits for the collector.
pub(super) struct SpanExporter {
    choice: Mutex<ExportChoice>,
    queue: Arc<ExportQueue>,
}

struct ExportChoice {
    sampling: ExportSampling,
    held: HeldSpans,
    joined: JoinedTraces,
}

/// Spans that are still to be exported: requests in their binary encoding, as Base64.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct UnsentSpans {
    queued: String,
    held: BTreeMap<String, String>,
}

impl SpanExporter {
    /// An exporter to the collector that the environment or the configuration names, if any. Needs the tokio runtime.
    pub(super) fn from_config(config: &Config) -> Option<SpanExporter> {
        let environment = |name: &str| std::env::var(name).ok();
        let tail = config.polylet.tracing.tail_sampling;
        match SpanExporter::new(&config.kubelet, tail, environment) {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::warn!(error = report(&error), "spans are not exported");
                None
            }
        }
    }

    fn new(
        config: &KubeletConfiguration,
        tail: TailSampling,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<SpanExporter>, ExporterError> {
        let settings = ExportSettings::new(config.tracing.as_ref(), &environment)?;
        let Some(settings) = settings else {
            return Ok(None);
        };
        let (sampler, warning) = TraceSampler::from_settings(config, &environment);
        if let Some(warning) = warning {
            tracing::warn!(warning, "environment warning");
        }
        let endpoint = settings.endpoint.to_string();
        let collector = CollectorClient::new(settings)?;
        tracing::info!(endpoint, "exporting spans");
        metrics::register_counts();
        let queue = Arc::new(ExportQueue::default());
        let sending = queue.clone();
        tokio::spawn(async move { queue::run(&sending, &collector).await });
        Ok(Some(SpanExporter {
            choice: Mutex::new(ExportChoice {
                sampling: ExportSampling::new(sampler, tail),
                held: HeldSpans::new(MAX_HELD),
                joined: JoinedTraces::new(),
            }),
            queue,
        }))
    }

    fn choice(&self) -> MutexGuard<'_, ExportChoice> {
        self.choice.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exports or holds the spans of a request.
    pub(super) fn receive(&self, request: ExportTraceServiceRequest) {
        let mut exported = ExportTraceServiceRequest::default();
        let mut dropped = 0;
        let mut choice = self.choice();
        for resource in &request.resource_spans {
            choice.joined.learn(resource);
        }
        for resource in request.resource_spans {
            let (now, held) = choice.split(resource);
            exported.resource_spans.extend(now);
            for (trace, spans) in held {
                let request = ExportTraceServiceRequest {
                    resource_spans: vec![spans],
                };
                let count = queue::count(&request);
                // Encoded requests can be joined.
                dropped += choice.held.hold(trace, &request.encode_to_vec(), count);
            }
        }
        choice.joined.join(&mut exported.resource_spans);
        drop(choice);
        self.queue.add_dropped(dropped);
        self.queue.push(exported);
    }

    /// Exports the root of a trace that has ended, and what was held of it, if it is to be.
    pub(super) fn end(&self, end: TraceEnd<'_>, root: Option<ResourceSpans>) {
        let mut choice = self.choice();
        let is_exported = choice.sampling.end(end);
        let held = choice.held.take(end.trace);
        if !is_exported {
            return;
        }
        // This process has encoded it.
        let mut request = ExportTraceServiceRequest::decode(held.as_slice()).unwrap_or_default();
        request.resource_spans.extend(root);
        choice.joined.join(&mut request.resource_spans);
        drop(choice);
        self.queue.push(request);
    }

    /// The spans that are still to be exported, for another program.
    pub(super) fn content(&self) -> UnsentSpans {
        let choice = self.choice();
        let held = choice.held.iter();
        UnsentSpans {
            queued: BASE64.encode(self.queue.content()),
            held: held
                .map(|(trace, encoded)| (hex(&trace), BASE64.encode(encoded)))
                .collect(),
        }
    }

    /// Takes over the unsent spans of another program.
    pub(super) fn restore(&self, unsent: UnsentSpans) {
        let decoded = |text: &str| BASE64.decode(text).unwrap_or_default();
        let request = ExportTraceServiceRequest::decode(decoded(&unsent.queued).as_slice());
        self.queue.push(request.unwrap_or_default());
        for (trace, encoded) in unsent.held {
            let encoded = decoded(&encoded);
            let request = ExportTraceServiceRequest::decode(encoded.as_slice());
            if let (Some(trace), Ok(request)) = (parse_trace_id(&trace), request) {
                let count = queue::count(&request);
                let dropped = self.choice().held.hold(trace, &encoded, count);
                self.queue.add_dropped(dropped);
            }
        }
    }

    /// Waits until everything is sent that is to be, at most for `limit`.
    pub(super) async fn flush(&self, limit: Duration) {
        // What is left is lost with this process.
        let _ = timeout(limit, self.queue.flushed()).await;
    }
}

impl ExportChoice {
    /// What of a resource's spans is exported now, and what is held for the ends of their traces.
    fn split(
        &mut self,
        from: ResourceSpans,
    ) -> (Option<ResourceSpans>, BTreeMap<TraceId, ResourceSpans>) {
        let part = |spans: Vec<ScopeSpans>| ResourceSpans {
            resource: from.resource.clone(),
            scope_spans: spans,
            schema_url: from.schema_url.clone(),
        };
        let mut now = Vec::new();
        let mut held: BTreeMap<TraceId, Vec<ScopeSpans>> = BTreeMap::new();
        for scope in from.scope_spans {
            let with = |spans: Vec<Span>| ScopeSpans {
                scope: scope.scope.clone(),
                spans,
                schema_url: scope.schema_url.clone(),
            };
            let mut exported = Vec::new();
            let mut of_traces: BTreeMap<TraceId, Vec<Span>> = BTreeMap::new();
            for mut span in scope.spans {
                let Ok(trace) = TraceId::try_from(span.trace_id.as_slice()) else {
                    continue;
                };
                let known = self.joined.flags(trace);
                let fate = match self.sampling.fate(trace, known.unwrap_or(span.flags)) {
                    // The first step, which names the parent, is still to come.
                    SpanFate::Export if is_joined(&span) && known.is_none() => SpanFate::Hold,
                    fate => fate,
                };
                span.flags &= KNOWN_FLAGS;
                match fate {
                    SpanFate::Export => exported.push(span),
                    SpanFate::Hold => of_traces.entry(trace).or_default().push(span),
                    SpanFate::Discard => {}
                }
            }
            if !exported.is_empty() {
                now.push(with(exported));
            }
            for (trace, spans) in of_traces {
                held.entry(trace).or_default().push(with(spans));
            }
        }
        let now = (!now.is_empty()).then(|| part(now));
        (
            now,
            held.into_iter()
                .map(|(trace, spans)| (trace, part(spans)))
                .collect(),
        )
    }
}

fn is_joined(span: &Span) -> bool {
    span.flags & u32::from(JOINED.to_u8()) != 0
}

#[cfg(test)]
mod tests;
