//! Spans of the services: received over OTLP, kept in a buffer, and exported if configured. Of traces that have
//! ended, summaries are kept for longer, and whoever follows them is told.

mod bounded_incoming;
pub(crate) mod convert;
mod ended;
mod export;
mod receive;
mod selection;
mod start_counts;
pub(crate) mod summary_convert;

use std::fmt::Display;
use std::fs::File;
use std::io::{BufReader, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use polylet_kit::config::{Config, TraceRing};
use polylet_kit::memory;
use polylet_kit::telemetry::ProcessIdentity;
use polylet_trace::{TraceFilter, hex};
use polylet_wire::lifecycle::v1::MetricFamily;
use polylet_wire::supervisor::v1 as wire;
use serde::{Deserialize, Deserializer};
use tokio::sync::{Notify, watch};
use tonic::{Request, Response, Status};

use crate::core::summary_buffer::SummaryBuffer;
use crate::core::trace_buffer::TraceBuffer;
use convert::SpanResource;
use export::{SpanExporter, UnsentSpans};
pub(crate) use selection::TraceSelection;
use start_counts::StartCounts;

/// Most summaries of traces.
const MAX_SUMMARIES: usize = 4_096;
/// Most bytes of summaries.
const MAX_SUMMARY_BYTES: usize = 2 << 20;

/// The buffer and the exporter. Clones share them.
#[derive(Clone)]
pub(crate) struct TraceStore {
    inner: Arc<TraceStoreInner>,
}

struct TraceStoreInner {
    buffer: Mutex<TraceBuffer>,
    summaries: Mutex<SummaryBuffer>,
    /// Changes when a trace has ended, and when those who follow are to go.
    following: watch::Sender<FollowState>,
    /// Notified when spans arrive, which shows that the node is at work.
    work: Arc<Notify>,
    /// The same, for the task that finds out which traces have ended.
    received: Arc<Notify>,
    /// Notified when something has been counted, for the task that publishes it.
    counted: Arc<Notify>,
    start_counts: StartCounts,
    exporter: Option<SpanExporter>,
}

/// What those who follow traces wait for.
#[derive(Default)]
struct FollowState {
    /// They are to go, as the server stops.
    stopping: bool,
}

impl TraceStoreInner {
    fn buffer(&self) -> MutexGuard<'_, TraceBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn summaries(&self) -> MutexGuard<'_, SummaryBuffer> {
        self.summaries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What this process is called in traces.
pub(crate) fn identity(node: &str) -> ProcessIdentity<'_> {
    ProcessIdentity {
        service: "supervisor",
        version: env!("CARGO_PKG_VERSION"),
        incarnation: "",
        node,
    }
}

/// The time by the clock that waits for the ends of traces.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl TraceStore {
    /// A store of the configured size, and the export of spans, if one is configured. Needs the tokio runtime.
    pub(crate) fn start(config: &Config) -> TraceStore {
        let polylet = &config.polylet;
        let exporter = SpanExporter::from_config(config);
        let store = TraceStore::new(&polylet.trace_ring, &polylet.node_name, exporter);
        if let Some(address) = polylet.tracing.receive {
            tokio::spawn(receive::serve(store.clone(), address));
        }
        store
    }

    fn new(bounds: &TraceRing, node: &str, exporter: Option<SpanExporter>) -> TraceStore {
        let work = Arc::new(Notify::new());
        tokio::spawn(memory::trim_after(work.clone()));
        let inner = Arc::new(TraceStoreInner {
            buffer: Mutex::new(TraceBuffer::new(bounds.max_spans, bounds.max_bytes)),
            summaries: Mutex::new(SummaryBuffer::new(MAX_SUMMARIES, MAX_SUMMARY_BYTES)),
            following: watch::Sender::default(),
            work,
            received: Arc::new(Notify::new()),
            counted: Arc::new(Notify::new()),
            start_counts: StartCounts::new(),
            exporter,
        });
        tokio::spawn(ended::collect(Arc::downgrade(&inner), node.to_owned()));
        TraceStore { inner }
    }

    /// The OTLP server.
    pub(crate) fn server(&self) -> TraceServiceServer<TraceStore> {
        TraceServiceServer::new(self.clone())
    }

    /// Writes the spans for another program, and after them the summaries and the spans that are not exported yet, which
    /// programs before do not read.
    pub(crate) fn save(&self, file: &mut dyn Write) -> std::io::Result<()> {
        serde_json::to_writer(&mut *file, &self.inner.buffer().content())?;
        serde_json::to_writer(&mut *file, &self.inner.summaries().content())?;
        let unsent = self.inner.exporter.as_ref().map(SpanExporter::content);
        serde_json::to_writer(file, &unsent).map_err(Into::into)
    }

    /// Waits until all spans are exported that are to be, at most for `limit`.
    pub(crate) async fn flush(&self, limit: Duration) {
        if let Some(exporter) = &self.inner.exporter {
            exporter.flush(limit).await;
        }
    }

    /// Takes over the spans and the summaries of another program.
    pub(crate) fn restore(&self, file: File) {
        let mut content = serde_json::Deserializer::from_reader(BufReader::new(file));
        let restored = self.inner.buffer().restore(&mut content, now());
        if let Err(error) = restored {
            tracing::warn!(%error, "traces of the program before are lost");
            return;
        }
        // Programs before have written none.
        if content.end().is_ok() {
            return;
        }
        if let Err(error) = self.inner.summaries().restore(&mut content) {
            tracing::warn!(%error, "summaries of the program before are lost");
        } else if content.end().is_err() {
            self.restore_unsent(&mut content);
        }
        // What has ended meanwhile, or was restored as ended.
        self.inner.received.notify_one();
    }

    fn restore_unsent<'de, D: Deserializer<'de>>(&self, content: D)
    where
        D::Error: Display,
    {
        match (
            Option::<UnsentSpans>::deserialize(content),
            &self.inner.exporter,
        ) {
            (Ok(Some(unsent)), Some(exporter)) => exporter.restore(unsent),
            (Ok(_), _) => {}
            (Err(error), _) => tracing::warn!(%error, "spans that were not exported yet are lost"),
        }
    }

    /// Traces that a filter selects, in the order of their ends. Those who follow also receive each that ends from
    /// now on; without a beginning, only these.
    pub(crate) fn select(&self, filter: TraceFilter, follow: bool) -> TraceSelection {
        TraceSelection::new(self.inner.clone(), filter, follow)
    }

    /// Lets those who follow traces go, or come again.
    pub(crate) fn set_stopping(&self, stopping: bool) {
        self.inner.following.send_replace(FollowState { stopping });
    }

    /// What this process has counted. Exemplars are those whose traces are kept.
    pub(crate) fn counts(&self) -> Vec<MetricFamily> {
        start_counts::forget_dropped(&self.inner);
        polylet_kit::metrics::counted()
    }

    /// Resolves when something has been counted since the last call, for one caller at a time.
    pub(crate) async fn counts_changed(&self) {
        self.inner.counted.notified().await;
    }

    /// Lets it resolve.
    #[cfg(test)]
    pub(crate) fn note_counted(&self) {
        self.inner.counted.notify_one();
    }

    /// An empty store. Needs the tokio runtime.
    #[cfg(test)]
    pub(crate) fn for_tests(bounds: &TraceRing) -> TraceStore {
        TraceStore::new(bounds, "n1", None)
    }

    /// Finds a trace by ID or pod.
    pub(crate) fn get(&self, query: &str) -> Result<wire::GetTraceResponse, Status> {
        let buffer = self.inner.buffer();
        let Some(id) = buffer.find(query) else {
            let dropped = match buffer.dropped() {
                0 => String::new(),
                n => format!(" ({n} older spans were dropped)"),
            };
            return Err(Status::not_found(format!(
                "trace not found: {query}{dropped}"
            )));
        };
        Ok(wire::GetTraceResponse {
            trace_id: hex(&id),
            spans: buffer.trace(id).into_iter().map(convert::to_wire).collect(),
            dropped: buffer.dropped(),
        })
    }
}

#[tonic::async_trait]
impl TraceService for TraceStore {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.add(request.into_inner(), convert::resource_of);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl TraceStore {
    /// Keeps spans, and exports them if that is configured.
    fn add(
        &self,
        request: ExportTraceServiceRequest,
        resource_of: fn(&ResourceSpans) -> SpanResource,
    ) {
        self.inner.work.notify_one();
        {
            let now = now();
            let mut buffer = self.inner.buffer();
            for resource in &request.resource_spans {
                let service = resource_of(resource);
                for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                    match convert::record(&service, span) {
                        Some(record) => buffer.push(&record, now),
                        None => buffer.add_dropped(1),
                    }
                }
            }
        }
        if let Some(exporter) = &self.inner.exporter {
            exporter.receive(request);
        }
        self.inner.received.notify_one();
        self.inner.counted.notify_one();
    }
}
