//! The connections of a port: their places, the timeouts of their clients, and the bodies of their
//! responses, which tell how far the client reads.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use polylet_kit::{CancellationToken, HealthConditions, TaskTracker, TaskTrackerToken};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::core::connections::{
    ConnectionId, ConnectionLimits, ConnectionTable, ConnectionTimeouts,
};

/// The health condition of an address with too many connections, and how long it lasts after one of them
/// gave its place to another.
const TOO_MANY: &str = "TooManyConnections";
const CONDITION_TIME: Duration = Duration::from_secs(30);

/// The connections of one port. Clones share them.
#[derive(Clone)]
pub(super) struct Connections {
    start: Instant,
    shared: Arc<Mutex<SharedConnections>>,
}

struct SharedConnections {
    table: ConnectionTable<IpAddr>,
    open: HashMap<ConnectionId, CancellationToken>,
}

impl Connections {
    pub(super) fn new(limits: ConnectionLimits, timeouts: ConnectionTimeouts) -> Self {
        Self {
            start: Instant::now(),
            shared: Arc::new(Mutex::new(SharedConnections {
                table: ConnectionTable::new(limits, timeouts),
                open: HashMap::new(),
            })),
        }
    }

    /// Admits a connection; another one is closed if there is no place for it.
    pub(super) fn admit(&self, address: IpAddr, socket: Option<OwnedFd>) -> AdmittedConnection {
        let address = address.to_canonical();
        let now = self.now();
        let closing = CancellationToken::new();
        let mut shared = self.lock();
        let (id, closed) = shared.table.admit(address, now);
        shared.open.insert(id, closing.clone());
        shared.close(closed);
        drop(shared);
        if closed.is_some() {
            let message = "connections without an allowed request are closed for new ones";
            let conditions = HealthConditions::of_process();
            conditions.set_for(TOO_MANY, address, message, CONDITION_TIME);
        }
        AdmittedConnection(Arc::new(HttpConnection {
            id,
            address,
            closing,
            socket: Mutex::new(socket),
            changed: Notify::new(),
            used: CancellationToken::new(),
            lasting: TaskTracker::new(),
            connections: self.clone(),
        }))
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn lock(&self) -> MutexGuard<'_, SharedConnections> {
        // No panic leaves a table half changed.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SharedConnections {
    fn close(&mut self, id: Option<ConnectionId>) {
        if let Some(closing) = id.and_then(|id| self.open.remove(&id)) {
            closing.cancel();
        }
    }
}

/// One connection. It has its place until this value is dropped.
pub(super) struct AdmittedConnection(pub(super) Arc<HttpConnection>);

impl Drop for AdmittedConnection {
    fn drop(&mut self) {
        let HttpConnection {
            id, connections, ..
        } = &*self.0;
        let mut shared = connections.lock();
        shared.table.remove(*id);
        shared.open.remove(id);
        drop(shared);
        // A request may live longer, and would keep the socket open.
        self.0.lock_socket().take();
    }
}

/// One connection, as its requests know it.
pub(crate) struct HttpConnection {
    id: ConnectionId,
    address: IpAddr,
    closing: CancellationToken,
    /// Another descriptor of the client's socket, while the connection has its place.
    socket: Mutex<Option<OwnedFd>>,
    /// Notified when the connection begins to wait for its client.
    changed: Notify,
    /// Cancelled at the first request.
    used: CancellationToken,
    /// The responses that may go on when the process drains.
    lasting: TaskTracker,
    connections: Connections,
}

impl HttpConnection {
    /// The address of the client.
    pub(crate) fn address(&self) -> IpAddr {
        self.address
    }

    /// Another descriptor of the client's socket: a stream outlives the HTTP connection. The socket is closed
    /// with its last descriptor.
    pub(crate) fn socket(&self) -> Option<OwnedFd> {
        let socket = self.lock_socket();
        socket.as_ref()?.try_clone().ok()
    }

    fn lock_socket(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request on it was allowed: unauthorized clients cannot displace it any more.
    pub(crate) fn trust(&self) {
        let mut shared = self.connections.lock();
        let closed = shared.table.trust(self.id);
        shared.close(closed);
    }

    /// Resolves when its first request has been received.
    pub(super) async fn used(&self) {
        self.used.cancelled().await;
    }

    /// Resolves when it has to give its place to another connection.
    pub(super) async fn displaced(&self) {
        self.closing.cancelled().await;
    }

    /// Resolves when its client did not act in time; true if the client was not waiting for anything.
    pub(super) async fn expired(&self) -> bool {
        loop {
            let expiry = self.connections.lock().table.expiry(self.id);
            let Some(expiry) = expiry else {
                self.changed.notified().await;
                continue;
            };
            if expiry.at <= self.connections.now() {
                return expiry.idle;
            }
            // The client may act meanwhile; then this is decided again. An earlier time is notified.
            tokio::select! {
                () = sleep_until(self.connections.start + expiry.at) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Whether there is a response that may go on when the process drains.
    pub(super) fn is_lasting(&self) -> bool {
        !self.lasting.is_empty()
    }

    /// Resolves when there is none any more.
    pub(super) async fn lasting_ended(&self) {
        self.lasting.close();
        self.lasting.wait().await;
    }

    fn update(&self, change: impl FnOnce(&mut ConnectionTable<IpAddr>, Duration)) {
        let now = self.connections.now();
        change(&mut self.connections.lock().table, now);
        self.changed.notify_one();
    }
}

/// A request in progress, until its response has been sent.
pub(super) struct ActiveRequest {
    connection: Arc<HttpConnection>,
    /// The client has not taken the last part of the response.
    unread: bool,
}

impl ActiveRequest {
    pub(super) fn start(connection: &Arc<HttpConnection>) -> Self {
        connection.used.cancel();
        connection.update(|table, now| table.start_request(connection.id, now));
        Self {
            connection: Arc::clone(connection),
            unread: false,
        }
    }

    fn set_unread(&mut self, unread: bool) {
        if std::mem::replace(&mut self.unread, unread) != unread {
            let id = self.connection.id;
            self.connection
                .update(|table, now| table.set_unread(id, unread, now));
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        let (id, unread) = (self.connection.id, self.unread);
        self.connection
            .update(|table, now| table.end_request(id, unread, now));
    }
}

/// The body of a response. Its next part is asked for when there is room for it: when the client has taken
/// enough of what was sent before.
pub(super) struct ResponseBody {
    body: Body,
    request: ActiveRequest,
    _lasting: Option<TaskTrackerToken>,
}

/// In the extensions of a response that may go on when the process drains: one without a foreseeable end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastingResponse;

impl ResponseBody {
    pub(super) fn new(body: Body, request: ActiveRequest, lasts: bool) -> Self {
        Self {
            _lasting: lasts.then(|| request.connection.lasting.token()),
            body,
            request,
        }
    }
}

impl hyper::body::Body for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.request.set_unread(false);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        self.request.set_unread(frame.is_some());
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
