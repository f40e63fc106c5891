//! Spans of the services: received over OTLP, stored in the ring, and forwarded if configured.

pub(crate) mod convert;
mod forward;

use std::fs::File;
use std::io::{BufReader, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use polylet_kit::config::TraceRing;
use polylet_kit::memory;
use polylet_wire::supervisor::v1 as wire;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

use crate::core::ring::{SpanRing, hex};
use forward::SpanForwarder;

/// The ring and the forwarder. Clones share them.
#[derive(Clone)]
pub(crate) struct TraceStore {
    inner: Arc<TraceStoreInner>,
}

struct TraceStoreInner {
    ring: Mutex<SpanRing>,
    /// Notified when spans arrive, which shows that the node is at work.
    work: Arc<Notify>,
    forwarder: Option<SpanForwarder>,
}

impl TraceStore {
    /// Starts the forwarder if the environment configures it. Needs the tokio runtime.
    pub(crate) fn start(bounds: &TraceRing) -> TraceStore {
        let ring = Mutex::new(SpanRing::new(bounds.max_spans, bounds.max_bytes));
        let work = Arc::new(Notify::new());
        tokio::spawn(memory::trim_after(work.clone()));
        TraceStore {
            inner: Arc::new(TraceStoreInner {
                ring,
                work,
                forwarder: SpanForwarder::from_environment(),
            }),
        }
    }

    /// The OTLP server.
    pub(crate) fn server(&self) -> TraceServiceServer<TraceStore> {
        TraceServiceServer::new(self.clone())
    }

    fn ring(&self) -> MutexGuard<'_, SpanRing> {
        self.inner
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the spans for another program.
    pub(crate) fn save(&self, file: &mut dyn Write) -> std::io::Result<()> {
        serde_json::to_writer(file, &self.ring().content()).map_err(Into::into)
    }

    /// Takes over the spans of another program.
    pub(crate) fn restore(&self, file: File) {
        let mut content = serde_json::Deserializer::from_reader(BufReader::new(file));
        let restored = self.ring().restore(&mut content);
        if let Err(error) = restored {
            tracing::warn!(%error, "spans of the program before are lost");
        }
    }

    /// Finds a trace by ID or pod.
    pub(crate) fn get(&self, query: &str) -> Result<wire::GetTraceResponse, Status> {
        let ring = self.ring();
        let Some(id) = ring.find(query) else {
            let dropped = match ring.dropped() {
                0 => String::new(),
                n => format!(" ({n} older spans were dropped)"),
            };
            return Err(Status::not_found(format!(
                "trace not found: {query}{dropped}"
            )));
        };
        Ok(wire::GetTraceResponse {
            trace_id: hex(&id),
            spans: ring.trace(id).into_iter().map(convert::to_wire).collect(),
            dropped: ring.dropped(),
        })
    }
}

#[tonic::async_trait]
impl TraceService for TraceStore {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let request = request.into_inner();
        self.inner.work.notify_one();
        {
            let mut ring = self.ring();
            for resource in &request.resource_spans {
                let service = convert::service_of(resource);
                for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                    match convert::record(&service, span) {
                        Some(record) => ring.push(&record),
                        None => ring.add_dropped(1),
                    }
                }
            }
        }
        if let Some(forwarder) = &self.inner.forwarder {
            forwarder.forward(request);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
