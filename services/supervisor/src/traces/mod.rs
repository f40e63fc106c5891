//! Spans of the services: received over OTLP, kept in a buffer, and forwarded if configured.

pub(crate) mod convert;
mod forward;
mod roots;

use std::fs::File;
use std::io::{BufReader, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use polylet_kit::config::TraceRing;
use polylet_kit::memory;
use polylet_trace::hex;
use polylet_wire::supervisor::v1 as wire;
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

use crate::core::trace_buffer::TraceBuffer;
use forward::SpanForwarder;

/// The buffer and the forwarder. Clones share them.
#[derive(Clone)]
pub(crate) struct TraceStore {
    inner: Arc<TraceStoreInner>,
}

struct TraceStoreInner {
    buffer: Mutex<TraceBuffer>,
    /// Notified when spans arrive, which shows that the node is at work.
    work: Arc<Notify>,
    /// The same, for the task that forwards roots.
    received: Arc<Notify>,
    forwarder: Option<SpanForwarder>,
}

impl TraceStoreInner {
    fn buffer(&self) -> MutexGuard<'_, TraceBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TraceStore {
    /// Starts the forwarder if the environment configures it. Needs the tokio runtime.
    pub(crate) fn start(bounds: &TraceRing, node: &str) -> TraceStore {
        let work = Arc::new(Notify::new());
        tokio::spawn(memory::trim_after(work.clone()));
        let inner = Arc::new(TraceStoreInner {
            buffer: Mutex::new(TraceBuffer::new(bounds.max_spans, bounds.max_bytes)),
            work,
            received: Arc::new(Notify::new()),
            forwarder: SpanForwarder::from_environment(),
        });
        if inner.forwarder.is_some() {
            tokio::spawn(roots::forward(Arc::downgrade(&inner), node.to_owned()));
        }
        TraceStore { inner }
    }

    /// The OTLP server.
    pub(crate) fn server(&self) -> TraceServiceServer<TraceStore> {
        TraceServiceServer::new(self.clone())
    }

    /// Writes the spans for another program.
    pub(crate) fn save(&self, file: &mut dyn Write) -> std::io::Result<()> {
        serde_json::to_writer(file, &self.inner.buffer().content()).map_err(Into::into)
    }

    /// Takes over the spans of another program.
    pub(crate) fn restore(&self, file: File) {
        let mut content = serde_json::Deserializer::from_reader(BufReader::new(file));
        let restored = self.inner.buffer().restore(&mut content, Instant::now());
        if let Err(error) = restored {
            tracing::warn!(%error, "spans of the program before are lost");
        }
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
        let request = request.into_inner();
        self.inner.work.notify_one();
        {
            let now = Instant::now();
            let mut buffer = self.inner.buffer();
            for resource in &request.resource_spans {
                let service = convert::resource_of(resource);
                for span in resource.scope_spans.iter().flat_map(|scope| &scope.spans) {
                    match convert::record(&service, span) {
                        Some(record) => buffer.push(&record, now),
                        None => buffer.add_dropped(1),
                    }
                }
            }
        }
        if let Some(forwarder) = &self.inner.forwarder {
            forwarder.forward(request);
            self.inner.received.notify_one();
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
