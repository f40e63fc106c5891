//! The supervisor's own server, and the replacement of its own program: calls in progress end first, further
//! ones wait in the socket's backlog for the next program.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use polylet_kit::lock::Lock;
use polylet_kit::report;
use polylet_kit::serve::{Routes, ServeError, serve};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

use crate::backend::own::{OwnRequest, ReplaceRequest};
use crate::core::handover::HandoverState;
use crate::handover::descriptors::{self, NamedDescriptors};
use crate::handover::{self, Replacement};
use crate::traces::TraceStore;

/// How long calls in progress may take before they are cut off.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a supervisor that stops waits for the collector.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The socket, the lock and the server of this process.
pub(super) struct OwnProcess {
    listener: UnixListener,
    lock: Lock,
    routes: Routes,
    traces: TraceStore,
    requests: UnboundedReceiver<OwnRequest>,
    server: JoinHandle<Result<(), ServeError>>,
    /// Ends the server.
    stop: Option<oneshot::Sender<()>>,
    /// What follows the end of the server, and when it is cut off.
    pending: Option<(ReplaceRequest, Instant)>,
}

/// What an event loop has to do for its own process.
pub(super) enum OwnEvent {
    /// Answer with the state that it would hand over.
    State(oneshot::Sender<HandoverState>),
    /// Call [`OwnProcess::replace`] with the state: nothing is being served any more.
    Replace(ReplaceRequest),
    /// The server failed.
    Failed(OwnServerError),
}

/// Why the supervisor's socket is not served.
#[derive(Debug, thiserror::Error)]
pub(super) enum OwnServerError {
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error("the server ended unexpectedly")]
    Ended,
    #[error("the server ended unexpectedly")]
    Task(#[from] JoinError),
    #[error("copying the listening socket")]
    Copy(#[source] std::io::Error),
}

impl OwnProcess {
    /// Serves the socket. Needs the tokio runtime.
    pub(super) fn start(
        listener: UnixListener,
        lock: Lock,
        routes: Routes,
        traces: TraceStore,
        requests: UnboundedReceiver<OwnRequest>,
    ) -> Result<OwnProcess, OwnServerError> {
        let (server, stop) = start_server(&listener, &routes)?;
        Ok(OwnProcess {
            listener,
            lock,
            routes,
            traces,
            requests,
            server,
            stop: Some(stop),
            pending: None,
        })
    }

    /// The next event. If it is cancelled, none is lost.
    pub(super) async fn next(&mut self) -> OwnEvent {
        loop {
            let cut_off = self.pending.as_ref().map(|(_, at)| *at);
            tokio::select! {
                ended = &mut self.server => match (self.pending.take(), ended) {
                    (Some((request, _)), _) => return OwnEvent::Replace(request),
                    (None, Ok(Ok(()))) => return OwnEvent::Failed(OwnServerError::Ended),
                    (None, Ok(Err(error))) => return OwnEvent::Failed(error.into()),
                    (None, Err(error)) => return OwnEvent::Failed(error.into()),
                },
                () = tokio::time::sleep_until(cut_off.unwrap_or_else(Instant::now)),
                    if cut_off.is_some() => self.server.abort(),
                Some(request) = self.requests.recv(), if cut_off.is_none() => match request {
                    OwnRequest::State(response) => return OwnEvent::State(response),
                    OwnRequest::Replace(request) => {
                        self.traces.set_stopping(true);
                        self.pending = Some((request, Instant::now() + STOP_TIMEOUT));
                        // The server may have failed.
                        let _ = self.stop.take().map(|stop| stop.send(()));
                    }
                },
            }
        }
    }

    /// Replaces the program of this process. Comes back only if that fails, and serves again.
    pub(super) fn replace(
        &mut self,
        request: ReplaceRequest,
        mut state: HandoverState,
        descriptors: NamedDescriptors<'_>,
    ) -> Result<(), OwnServerError> {
        let spans = self.save_spans();
        let mut descriptors = descriptors;
        descriptors.push((descriptors::LOCK.to_owned(), self.lock.as_fd()));
        descriptors.push((descriptors::OWN_SOCKET.to_owned(), self.listener.as_fd()));
        if let Some(spans) = &spans {
            descriptors.push((descriptors::SPANS.to_owned(), spans.as_fd()));
        }
        state.previous.clone_from(&request.previous);
        tracing::info!(program = %request.program.display(), "handing over to another program");
        let error = handover::replace(Replacement {
            program: &request.program,
            state: &state,
            descriptors,
            deadline: request.deadline,
        });
        tracing::error!(error = report(&error), "the other program was not started");
        // The requester may be gone.
        let _ = request.response.send(error);
        self.traces.set_stopping(false);
        let (server, stop) = start_server(&self.listener, &self.routes)?;
        self.server = server;
        self.stop = Some(stop);
        Ok(())
    }

    /// Waits for the last spans to be exported, for a while.
    pub(super) async fn flush_spans(&self) {
        self.traces.flush(FLUSH_TIMEOUT).await;
    }

    /// The spans for the next program; without them traces are lost, and nothing else.
    fn save_spans(&self) -> Option<File> {
        let saved = handover::memory_file("polylet-spans", |file| self.traces.save(file));
        saved
            .inspect_err(|error| tracing::warn!(%error, "spans are not handed over"))
            .ok()
    }
}

type RunningServer = (JoinHandle<Result<(), ServeError>>, oneshot::Sender<()>);

fn start_server(listener: &UnixListener, routes: &Routes) -> Result<RunningServer, OwnServerError> {
    let (stop, stopped) = oneshot::channel();
    let listener = listener.try_clone().map_err(OwnServerError::Copy)?;
    let stopped = async {
        let _ = stopped.await;
    };
    let server = tokio::spawn(serve(listener, routes.clone(), stopped));
    Ok((server, stop))
}
