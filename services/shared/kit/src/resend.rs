//! Calls that were not sent are sent again.
//!
//! A connection takes calls into a queue. When the peer drains and closes the connection, those that are
//! still in it end with an error, although nothing of them was sent: the next process would have answered
//! them.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tonic::transport::Channel;
use tower_service::Service;

/// Connections that may be closed before a call has been sent on one.
const MAX_RESENDS: u32 = 4;

/// Sends a request on a channel that is ready, and again if the connection was closed before it was sent.
pub(crate) async fn call(
    mut channel: Channel,
    request: Request<Body>,
) -> Result<Response<Body>, tonic::transport::Error> {
    let (parts, body) = request.into_parts();
    let body = UnsentBody::new(body);
    for _ in 0..MAX_RESENDS {
        let request = Request::from_parts(parts.clone(), Body::new(body.clone()));
        match channel.call(request).await {
            Err(error) if is_canceled(&error) && !body.is_begun() => {
                poll_fn(|cx| channel.poll_ready(cx)).await?;
            }
            result => return result,
        }
    }
    channel
        .call(Request::from_parts(parts, Body::new(body)))
        .await
}

/// Whether the connection has dropped the request, rather than the peer or this side.
fn is_canceled(error: &(dyn Error + 'static)) -> bool {
    let mut source = Some(error);
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<hyper::Error>() {
            return error.is_canceled();
        }
        source = error.source();
    }
    false
}

/// The body of a request, which outlives the request until something of it is sent.
#[derive(Clone)]
struct UnsentBody {
    body: Arc<Mutex<Body>>,
    begun: Arc<AtomicBool>,
}

impl UnsentBody {
    fn new(body: Body) -> Self {
        Self {
            body: Arc::new(Mutex::new(body)),
            begun: Arc::default(),
        }
    }

    /// Whether anything of it may have been sent.
    fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Acquire)
    }

    fn body(&self) -> MutexGuard<'_, Body> {
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for UnsentBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Status>>> {
        self.begun.store(true, Ordering::Release);
        Pin::new(&mut *self.body()).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body().size_hint()
    }
}
