//! Crash points of requests that change something.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Request};
use tower::Service;

/// A client whose writing requests have points.
#[derive(Clone)]
pub(crate) struct CrashPoints<S>(pub(crate) S);

impl<S, B> Service<Request<B>> for CrashPoints<S>
where
    S: Service<Request<B>>,
    S::Future: Send + 'static,
    S::Response: 'static,
    S::Error: 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.method() == Method::GET {
            return Box::pin(self.0.call(request));
        }
        let path = polylet_crash_points::request_name(request.uri().path());
        let effect = format!("api.{} {path}", request.method());
        // Nothing is sent before the future is polled.
        Box::pin(polylet_crash_points::around(effect, self.0.call(request)))
    }
}
