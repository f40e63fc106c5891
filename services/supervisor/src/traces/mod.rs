//! Spans of the services: taken in, held in the ring, passed on when asked for.

mod convert;
mod forward;

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

use crate::core::ring::{Ring, hex};
use forward::Forward;

/// The ring and the way onward, shared by the two services of the supervisor's socket.
#[derive(Clone)]
pub(crate) struct Traces {
    inner: Arc<Inner>,
}

struct Inner {
    ring: Mutex<Ring>,
    /// Spans tell of work, of ours and of the services'.
    work: Arc<Notify>,
    forward: Option<Forward>,
}

impl Traces {
    /// Starts the forwarding task when the environment asks for it. Needs the tokio runtime.
    pub(crate) fn start(bounds: &TraceRing) -> Traces {
        let ring = Mutex::new(Ring::new(bounds.max_spans, bounds.max_bytes));
        let work = Arc::new(Notify::new());
        tokio::spawn(memory::give_back_after(work.clone()));
        Traces {
            inner: Arc::new(Inner {
                ring,
                work,
                forward: Forward::from_environment(),
            }),
        }
    }

    /// The OTLP server.
    pub(crate) fn server(&self) -> TraceServiceServer<Traces> {
        TraceServiceServer::new(self.clone())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.inner
            .ring
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The trace that a query means.
    pub(crate) fn get(&self, query: &str) -> Result<wire::GetTraceResponse, Status> {
        let ring = self.ring();
        let Some(id) = ring.find(query) else {
            let dropped = match ring.dropped() {
                0 => String::new(),
                n => format!(" ({n} older spans have been dropped)"),
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
impl TraceService for Traces {
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
                        None => ring.lost(1),
                    }
                }
            }
        }
        if let Some(forward) = &self.inner.forward {
            forward.pass(request);
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
