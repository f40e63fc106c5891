//! The order of lists and watches that keeps local state equal to the API server's.
//!
//! Lists have no resource version, so that the server responses from its store (a quorum read) and
//! never with an older state than it has sent before. A watch resumes from the last version
//! received, also on another connection; only when the server has dropped that version (410 Gone)
//! is everything listed again.

use std::time::Duration;

use polylet_api::ApiErrorKind;

/// After so many watches in a row that the server responses with an error, everything is listed again:
/// the server may never have had the version (its data was restored from an older backup).
const MAX_WATCH_FAILURES: u32 = 5;

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorRequest {
    /// Get the object by its name, which is the fastest way.
    Get,
    /// List all objects.
    List,
    /// Watch the changes since a version.
    Watch {
        /// Resource version to resume from.
        from: String,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReflectorResponse {
    /// Of `Get`: the object's version; `None` when it does not exist.
    Got(Option<String>),
    /// Of `List`: the version of the list.
    Listed(String),
    /// During `Watch`: the version of a change or bookmark.
    Event(String),
    /// The server ended the watch, as it does after its timeout.
    Ended,
    /// The request failed.
    Failed(ApiErrorKind),
}

/// When the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// Without delay.
    Immediately,
    /// After a backoff, which is at least as long as the server asked for.
    AfterBackoff(Option<Duration>),
}

/// State of one list-and-watch.
#[derive(Clone, Debug)]
pub struct Reflector {
    /// Whether the target is one object, which supports `Get`.
    single: bool,
    version: Option<String>,
    /// Whether a first request has succeeded.
    initial_response: bool,
    /// Whether the current watch has received an event.
    received_events: bool,
    failures: u32,
}

impl Reflector {
    /// State before the first request.
    pub fn new(single: bool) -> Reflector {
        Reflector {
            single,
            version: None,
            initial_response: false,
            received_events: false,
            failures: 0,
        }
    }

    /// The next request.
    pub fn next_request(&self) -> ReflectorRequest {
        match &self.version {
            Some(version) => ReflectorRequest::Watch {
                from: version.clone(),
            },
            None if self.single && !self.initial_response => ReflectorRequest::Get,
            None => ReflectorRequest::List,
        }
    }

    /// Handles the result of a request.
    pub fn handle_response(&mut self, response: ReflectorResponse) -> NextRequest {
        match response {
            ReflectorResponse::Got(version) => {
                self.initial_response = true;
                self.set_version(version)
            }
            ReflectorResponse::Listed(version) => {
                self.initial_response = true;
                self.set_version(Some(version))
            }
            ReflectorResponse::Event(version) => {
                self.received_events = true;
                self.failures = 0;
                if !version.is_empty() {
                    self.version = Some(version);
                }
                NextRequest::Immediately
            }
            // Backs off from a server that ends every watch at once.
            ReflectorResponse::Ended if std::mem::take(&mut self.received_events) => {
                NextRequest::Immediately
            }
            ReflectorResponse::Ended => NextRequest::AfterBackoff(None),
            ReflectorResponse::Failed(kind) => self.handle_failure(kind),
        }
    }

    fn set_version(&mut self, version: Option<String>) -> NextRequest {
        self.version = version.filter(|version| !version.is_empty());
        self.received_events = false;
        NextRequest::Immediately
    }

    fn handle_failure(&mut self, kind: ApiErrorKind) -> NextRequest {
        let received_events = std::mem::take(&mut self.received_events);
        match kind {
            ApiErrorKind::Gone => {
                // Only the first list is immediate: a list whose version is always too old to watch
                // from must not cause a loop.
                let first = self.failures == 0 || received_events;
                self.failures += 1;
                self.version = None;
                self.initial_response = true;
                return if first {
                    NextRequest::Immediately
                } else {
                    NextRequest::AfterBackoff(None)
                };
            }
            ApiErrorKind::ServerError | ApiErrorKind::Invalid | ApiErrorKind::NotFound => {
                self.failures += 1;
                if self.failures >= MAX_WATCH_FAILURES {
                    self.failures = 0;
                    self.version = None;
                    self.initial_response = true;
                }
            }
            _ => {}
        }
        match kind {
            ApiErrorKind::TooManyRequests(retry_after) => NextRequest::AfterBackoff(retry_after),
            _ => NextRequest::AfterBackoff(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(number: u32) -> String {
        number.to_string()
    }

    fn watch(from: u32) -> ReflectorRequest {
        ReflectorRequest::Watch {
            from: version(from),
        }
    }

    #[test]
    fn watches_resume_from_the_last_version() {
        let mut all = Reflector::new(false);
        assert_eq!(all.next_request(), ReflectorRequest::List);
        assert_eq!(
            all.handle_response(ReflectorResponse::Listed(version(5))),
            NextRequest::Immediately
        );
        assert_eq!(all.next_request(), watch(5));
        all.handle_response(ReflectorResponse::Event(version(7)));
        assert_eq!(
            all.handle_response(ReflectorResponse::Ended),
            NextRequest::Immediately
        );
        assert_eq!(all.next_request(), watch(7));
        assert_eq!(
            all.handle_response(ReflectorResponse::Ended),
            NextRequest::AfterBackoff(None),
            "no events"
        );
        let lost = ReflectorResponse::Failed(ApiErrorKind::Unreachable);
        assert_eq!(all.handle_response(lost), NextRequest::AfterBackoff(None));
        assert_eq!(
            all.next_request(),
            watch(7),
            "a lost connection keeps the version"
        );
        let busy =
            ReflectorResponse::Failed(ApiErrorKind::TooManyRequests(Some(Duration::from_secs(3))));
        assert_eq!(
            all.handle_response(busy),
            NextRequest::AfterBackoff(Some(Duration::from_secs(3)))
        );
        assert_eq!(
            all.handle_response(ReflectorResponse::Failed(ApiErrorKind::Gone)),
            NextRequest::Immediately
        );
        assert_eq!(all.next_request(), ReflectorRequest::List);
        all.handle_response(ReflectorResponse::Listed(version(9)));
        let again = all.handle_response(ReflectorResponse::Failed(ApiErrorKind::Gone));
        assert_eq!(
            again,
            NextRequest::AfterBackoff(None),
            "no loop without backoff"
        );
    }

    #[test]
    fn single_object_starts_with_get() {
        let mut one = Reflector::new(true);
        assert_eq!(one.next_request(), ReflectorRequest::Get);
        one.handle_response(ReflectorResponse::Failed(ApiErrorKind::Forbidden));
        assert_eq!(one.next_request(), ReflectorRequest::Get);
        let mut absent = one.clone();
        one.handle_response(ReflectorResponse::Got(Some(version(3))));
        assert_eq!(one.next_request(), watch(3));
        one.handle_response(ReflectorResponse::Failed(ApiErrorKind::Gone));
        assert_eq!(one.next_request(), ReflectorRequest::List);
        absent.handle_response(ReflectorResponse::Got(None));
        assert_eq!(
            absent.next_request(),
            ReflectorRequest::List,
            "for a version to watch from"
        );
    }

    #[test]
    fn lists_again_after_repeated_watch_failures() {
        let mut all = Reflector::new(false);
        all.handle_response(ReflectorResponse::Listed(version(1000)));
        for _ in 0..MAX_WATCH_FAILURES {
            assert_eq!(all.next_request(), watch(1000));
            all.handle_response(ReflectorResponse::Failed(ApiErrorKind::ServerError));
        }
        assert_eq!(all.next_request(), ReflectorRequest::List);
    }

    fn response() -> impl Strategy<Value = ReflectorResponse> {
        prop_oneof![
            Just(ReflectorResponse::Ended),
            (0u32..9).prop_map(|v| ReflectorResponse::Event(version(v))),
            prop_oneof![
                Just(ApiErrorKind::Gone),
                Just(ApiErrorKind::ServerError),
                Just(ApiErrorKind::Forbidden),
                Just(ApiErrorKind::Unreachable),
                Just(ApiErrorKind::TooManyRequests(None)),
            ]
            .prop_map(ReflectorResponse::Failed),
        ]
    }

    proptest! {
        #[test]
        fn backs_off_and_always_recovers(
            single in any::<bool>(),
            responses in prop::collection::vec((any::<bool>(), response()), 0..60),
        ) {
            let mut reflector = Reflector::new(single);
            let mut immediate = 0;
            for (good, other) in responses {
                let request = reflector.next_request();
                let response = match (&request, good) {
                    (ReflectorRequest::Get, true) => ReflectorResponse::Got(Some(version(1))),
                    (ReflectorRequest::List, true) => ReflectorResponse::Listed(version(2)),
                    (ReflectorRequest::Watch { .. }, true) => ReflectorResponse::Event(version(3)),
                    (ReflectorRequest::Get | ReflectorRequest::List, false) => match other {
                        ReflectorResponse::Failed(_) => other,
                        _ => ReflectorResponse::Failed(ApiErrorKind::Unreachable),
                    },
                    (ReflectorRequest::Watch { .. }, false) => other,
                };
                let progress = matches!(response, ReflectorResponse::Event(_) | ReflectorResponse::Got(_) | ReflectorResponse::Listed(_));
                let next = reflector.handle_response(response);
                immediate = if progress || next != NextRequest::Immediately { 0 } else { immediate + 1 };
                // The end of a watch with events, and one 410, are followed without backoff.
                prop_assert!(immediate <= 2, "{immediate} requests without backoff or progress");
            }
            for _ in 0..2 {
                let response = match reflector.next_request() {
                    ReflectorRequest::Get => ReflectorResponse::Got(Some(version(8))),
                    ReflectorRequest::List => ReflectorResponse::Listed(version(8)),
                    ReflectorRequest::Watch { from } => ReflectorResponse::Event(from),
                };
                reflector.handle_response(response);
            }
            let watching = matches!(reflector.next_request(), ReflectorRequest::Watch { .. });
            prop_assert!(watching, "two successful requests lead to a watch");
        }
    }
}
