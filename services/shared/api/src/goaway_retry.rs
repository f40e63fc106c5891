//! Requests that the server did not process because it closed the connection.
//!
//! Servers behind a load balancer ask their clients now and then to reconnect (GOAWAY without an
//! error). A request that the server has not begun to process is sent again on a new connection, as
//! Go's client does, and does not count as an outage.

use std::error::Error;
use std::future::{Ready, ready};

use http::Request;
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

const MAX_RETRIES: u32 = 3;

/// Retries requests that a graceful GOAWAY has cut off.
#[derive(Clone, Debug)]
pub(crate) struct GoawayRetry {
    retries_left: u32,
}

impl GoawayRetry {
    pub(crate) fn new() -> GoawayRetry {
        GoawayRetry {
            retries_left: MAX_RETRIES,
        }
    }
}

impl<R> Policy<Request<Body>, R, BoxError> for GoawayRetry {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        result: &mut Result<R, BoxError>,
    ) -> Option<Ready<()>> {
        let error = result.as_ref().err()?;
        self.retries_left = self.retries_left.checked_sub(1)?;
        is_graceful_goaway(error.as_ref()).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut copy = Request::new(request.body().try_clone()?);
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        Some(copy)
    }
}

/// Whether the server closed the connection without an error, before it processed the request.
fn is_graceful_goaway(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let graceful = error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_go_away() && error.is_remote() && graceful;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The client's error when the server closes the connection for this reason before a response.
    async fn error_of_goaway(reason: h2::Reason) -> BoxError {
        let (near, far) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            server.abrupt_shutdown(reason);
            std::future::poll_fn(|context| server.poll_closed(context)).await
        });
        let (client, connection) = h2::client::handshake(near).await.unwrap();
        let connection = tokio::spawn(connection);
        let request = async {
            let mut client = client.ready().await?;
            let (response, _) = client.send_request(Request::new(()), true)?;
            response.await
        };
        let error = request.await.map(drop).unwrap_err();
        let _ = (connection.await, server.await);
        error.into()
    }

    #[tokio::test]
    async fn graceful_goaways_are_distinguished_from_errors() {
        assert!(is_graceful_goaway(
            error_of_goaway(h2::Reason::NO_ERROR).await.as_ref()
        ));
        let calm = error_of_goaway(h2::Reason::ENHANCE_YOUR_CALM).await;
        assert!(!is_graceful_goaway(calm.as_ref()), "{calm}");
        assert!(!is_graceful_goaway(&std::io::Error::other("reset")));
    }

    #[test]
    fn the_whole_request_is_sent_again_and_other_errors_are_not_retried() {
        let mut policy = GoawayRetry::new();
        let request = Request::post("https://a/b").header("x", "y");
        let request = request.body(Body::from(b"body".to_vec())).unwrap();
        let copy = Policy::<_, (), _>::clone_request(&mut policy, &request).unwrap();
        assert_eq!(copy.method(), "POST");
        assert_eq!(
            (copy.uri(), &copy.headers()["x"]),
            (request.uri(), &request.headers()["x"])
        );
        assert!(copy.body().try_clone().is_some());
        let mut reset: Result<(), BoxError> = Err("reset".into());
        assert!(
            policy
                .retry(&mut request.map(|body| body), &mut reset)
                .is_none()
        );
    }
}
