//! The end of a request in the frame of its last message.
//!
//! tonic learns that a request of one message has ended only when it asks for the next one, so that
//! the end was a frame of its own: one more system call here, and one more wake-up of the server, for
//! each call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::Request;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

type BodyFrame = Frame<<Body as HttpBody>::Data>;

/// A transport whose requests end with their last message.
#[derive(Clone, Debug)]
pub struct EndWithMessage<S>(pub S);

impl<S: Service<Request<Body>>> Service<Request<Body>> for EndWithMessage<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> S::Future {
        self.0.call(request.map(end_with_message))
    }
}

/// The same body, whose last message says that it is the last.
pub(crate) fn end_with_message(body: Body) -> Body {
    Body::new(PeekedBody {
        body,
        peeked: None,
        ended: false,
    })
}

/// A body that is asked for one frame more than was taken of it.
struct PeekedBody {
    body: Body,
    peeked: Option<Result<BodyFrame, Status>>,
    ended: bool,
}

impl PeekedBody {
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.ended = matches!(polled, Poll::Ready(None));
        polled
    }
}

impl HttpBody for PeekedBody {
    type Data = <Body as HttpBody>::Data;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame, Status>>> {
        let frame = match self.peeked.take() {
            Some(frame) => Some(frame),
            None => ready!(self.poll_inner(cx)),
        };
        if frame.is_some()
            && let Poll::Ready(next) = self.poll_inner(cx)
        {
            self.peeked = next;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.peeked.is_none() && (self.ended || self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self.peeked {
            Some(_) => SizeHint::default(),
            None => self.body.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Waker;

    use super::*;

    /// Yields messages, with pauses between some.
    struct Messages(VecDeque<Option<&'static str>>);

    impl HttpBody for Messages {
        type Data = <Body as HttpBody>::Data;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<BodyFrame, Status>>> {
            match self.0.pop_front() {
                Some(Some(text)) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
                Some(None) => Poll::Pending,
                None => Poll::Ready(None),
            }
        }
    }

    /// What is polled of a body, and whether it had ended after each.
    fn polled(messages: &[Option<&'static str>]) -> Vec<(String, bool)> {
        let messages = Messages(messages.iter().copied().collect());
        let mut body = end_with_message(Body::new(messages));
        let mut cx = Context::from_waker(Waker::noop());
        let mut all = Vec::new();
        loop {
            let text = match Pin::new(&mut body).poll_frame(&mut cx) {
                Poll::Ready(Some(frame)) => {
                    let data = frame.unwrap().into_data().unwrap();
                    String::from_utf8(data.to_vec()).unwrap()
                }
                Poll::Pending => "pending".to_owned(),
                Poll::Ready(None) => return all,
            };
            all.push((text, body.is_end_stream()));
        }
    }

    #[test]
    fn the_last_message_ends_the_body() {
        assert_eq!(polled(&[]), []);
        assert_eq!(polled(&[Some("a")]), [("a".to_owned(), true)]);
        let (a, b) = ("a".to_owned(), "b".to_owned());
        assert_eq!(
            polled(&[Some("a"), Some("b")]),
            [(a.clone(), false), (b.clone(), true)]
        );
        // A stream whose next message is not there yet.
        assert_eq!(
            polled(&[Some("a"), None, Some("b"), None]),
            [(a, false), (b, false)]
        );
    }
}
