//! Servers that ask their clients to come back on another connection (GOAWAY without an error), as those
//! behind a balancer do now and then: what they did not begin to answer is asked again there, as Go's
//! clients do, and nobody takes the server for away.

use std::error::Error;
use std::future::{Ready, ready};

use http::Request;
use kube::client::Body;
use tower::BoxError;
use tower::retry::Policy;

/// How often a request is asked again.
const TIMES: u32 = 3;

/// Asks again what a farewell cut off.
#[derive(Clone, Debug)]
pub(crate) struct AskAgain {
    left: u32,
}

impl AskAgain {
    pub(crate) fn new() -> AskAgain {
        AskAgain { left: TIMES }
    }
}

impl<R> Policy<Request<Body>, R, BoxError> for AskAgain {
    type Future = Ready<()>;

    fn retry(
        &mut self,
        _: &mut Request<Body>,
        answer: &mut Result<R, BoxError>,
    ) -> Option<Ready<()>> {
        let error = answer.as_ref().err()?;
        self.left = self.left.checked_sub(1)?;
        is_farewell(error.as_ref()).then(|| ready(()))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        Some(again)
    }
}

/// Whether the server has closed the connection in peace, before it began with the request.
fn is_farewell(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<h2::Error>() {
            let peaceful = error.reason() == Some(h2::Reason::NO_ERROR);
            return error.is_go_away() && error.is_remote() && peaceful;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client is told when the server goes with this reason before it has answered.
    async fn told(reason: h2::Reason) -> BoxError {
        let (near, far) = tokio::io::duplex(1 << 16);
        let served = tokio::spawn(async move {
            let mut server = h2::server::handshake(far).await.unwrap();
            server.abrupt_shutdown(reason);
            std::future::poll_fn(|context| server.poll_closed(context)).await
        });
        let (client, connection) = h2::client::handshake(near).await.unwrap();
        let connection = tokio::spawn(connection);
        let asked = async {
            let mut client = client.ready().await?;
            let (answer, _) = client.send_request(Request::new(()), true)?;
            answer.await
        };
        let error = asked.await.map(drop).unwrap_err();
        let _ = (connection.await, served.await);
        error.into()
    }

    #[tokio::test]
    async fn a_farewell_is_told_from_trouble() {
        assert!(is_farewell(told(h2::Reason::NO_ERROR).await.as_ref()));
        let trouble = told(h2::Reason::ENHANCE_YOUR_CALM).await;
        assert!(!is_farewell(trouble.as_ref()), "{trouble}");
        assert!(!is_farewell(&std::io::Error::other("reset")));
    }

    #[test]
    fn a_request_is_asked_again_whole_and_not_for_ever() {
        let mut policy = AskAgain::new();
        let request = Request::post("https://a/b").header("x", "y");
        let request = request.body(Body::from(b"body".to_vec())).unwrap();
        let again = Policy::<_, (), _>::clone_request(&mut policy, &request).unwrap();
        assert_eq!(again.method(), "POST");
        assert_eq!(
            (again.uri(), &again.headers()["x"]),
            (request.uri(), &request.headers()["x"])
        );
        assert!(again.body().try_clone().is_some());
        let mut trouble: Result<(), BoxError> = Err("reset".into());
        assert!(
            policy
                .retry(&mut request.map(|body| body), &mut trouble)
                .is_none()
        );
    }
}
