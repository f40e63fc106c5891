//! What a service has to say to people about a pod or the node: short-lived state that
//! status-reporter turns into events. Every service serves its own.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use futures::Stream;
use jiff::{SignedDuration, Timestamp};
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::notice::v1::notice_service_server::NoticeService;
use polylet_wire::notice::v1::{
    Notice, ObjectRef, Severity, WatchNoticesRequest, WatchNoticesResponse,
};
use polylet_wire::time::to_wire;
use tonic::{Request, Response, Status};

/// How long a notice stays, so that who was away for a while misses none.
const STAYS: SignedDuration = SignedDuration::from_mins(5);
/// As many as upstream's queue of events.
const MOST: usize = 1000;

/// What a service has told lately. Clones share it.
#[derive(Clone)]
pub struct Notices {
    incarnation: Arc<str>,
    store: Store<String, Notice>,
    told: Arc<Mutex<Told>>,
}

/// Whom a notice is about.
enum About<'a> {
    Pod(&'a PodRef),
    Object(ObjectRef),
    Node,
}

#[derive(Default)]
struct Told {
    count: u64,
    oldest_first: VecDeque<(Timestamp, String)>,
}

impl Notices {
    pub(crate) fn new(service: &str, incarnation: &str) -> Notices {
        let store = Store::new(incarnation);
        store.mark_whole();
        Notices {
            incarnation: format!("{service}-{incarnation}").into(),
            store,
            told: Arc::default(),
        }
    }

    /// Something normal about a pod, or a part of it (`spec.containers{web}`; empty for the whole).
    pub fn normal(&self, pod: &PodRef, part: &str, reason: &str, message: impl Into<String>) {
        self.tell(
            About::Pod(pod),
            part,
            Severity::Normal,
            reason,
            message.into(),
        );
    }

    /// Something amiss with a pod, or a part of it.
    pub fn warning(&self, pod: &PodRef, part: &str, reason: &str, message: impl Into<String>) {
        self.tell(
            About::Pod(pod),
            part,
            Severity::Warning,
            reason,
            message.into(),
        );
    }

    /// Something about the node.
    pub fn of_node(&self, severity: Severity, reason: &str, message: impl Into<String>) {
        self.tell(About::Node, "", severity, reason, message.into());
    }

    /// Something about another object of the cluster.
    pub fn of_object(
        &self,
        object: ObjectRef,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.tell(About::Object(object), "", severity, reason, message.into());
    }

    fn tell(
        &self,
        about: About<'_>,
        part: &str,
        severity: Severity,
        reason: &str,
        message: String,
    ) {
        let now = Timestamp::now();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.count += 1;
        let (pod, object) = match about {
            About::Pod(pod) => (Some(pod.clone()), None),
            About::Object(object) => (None, Some(object)),
            About::Node => (None, None),
        };
        let id = format!("{}-{}", self.incarnation, told.count);
        told.oldest_first.push_back((now, id.clone()));
        self.store.upsert(
            id.clone(),
            Notice {
                id,
                pod,
                field_path: part.to_owned(),
                severity: severity.into(),
                reason: reason.to_owned(),
                message,
                at: Some(to_wire(now)),
                object,
            },
        );
        while let Some((at, id)) = told.oldest_first.front() {
            if told.oldest_first.len() <= MOST && now.duration_since(*at) < STAYS {
                break;
            }
            self.store.remove(id);
            told.oldest_first.pop_front();
        }
    }
}

#[tonic::async_trait]
impl NoticeService for Notices {
    type WatchNoticesStream =
        Pin<Box<dyn Stream<Item = Result<WatchNoticesResponse, Status>> + Send + 'static>>;

    async fn watch_notices(
        &self,
        request: Request<WatchNoticesRequest>,
    ) -> Result<Response<Self::WatchNoticesStream>, Status> {
        let after = request.into_inner().resume_after;
        Ok(Response::new(polylet_watch::serve(
            self.store.clone(),
            after,
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first_and_no_two_are_one() {
        let notices = Notices::new("pleg", "1");
        for n in 0..MOST + 10 {
            notices.normal(&PodRef::default(), "", "Pulled", format!("{n}"));
        }
        let kept = notices.store.snapshot();
        assert_eq!(kept.len(), MOST);
        assert!(kept.contains_key(&format!("pleg-1-{}", MOST + 10)));
        assert!(!kept.contains_key("pleg-1-10"));
    }
}
