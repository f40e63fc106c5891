//! Notices about pods, the node and other objects: short-lived state that status-reporter turns into
//! Kubernetes events. Every service serves its own.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::Stream;
use jiff::Timestamp;
use polylet_watch::Store;
use polylet_wire::common::v1::PodRef;
use polylet_wire::notice::v1::notice_service_server::NoticeService;
use polylet_wire::notice::v1::{
    Notice, ObjectRef, Severity, WatchNoticesRequest, WatchNoticesResponse,
};
use polylet_wire::time::to_wire;
use tokio::time::Instant;
use tonic::{Request, Response, Status};

/// How long a notice is kept for a watcher that reconnects.
const RETENTION: Duration = Duration::from_secs(300);
/// Between two removals of expired notices: they go in batches.
const EXPIRY_BATCH: Duration = Duration::from_secs(60);
/// The size of upstream's event queue.
const MAX_NOTICES: usize = 1000;

/// The recent notices of a service. Clones share them.
#[derive(Clone)]
pub struct Notices {
    incarnation: Arc<str>,
    store: Store<String, Notice>,
    recent: Arc<Mutex<RecentNotices>>,
}

/// The object of a notice.
enum Subject<'a> {
    Pod(&'a PodRef),
    Object(ObjectRef),
    Node,
}

#[derive(Default)]
struct RecentNotices {
    count: u64,
    oldest_first: VecDeque<(Instant, String)>,
    /// Whether a task waits for the oldest to expire.
    has_expiry: bool,
}

impl Notices {
    pub(crate) fn new(service: &str, incarnation: &str) -> Notices {
        let store = Store::new(incarnation);
        store.mark_synced();
        Notices {
            incarnation: format!("{service}-{incarnation}").into(),
            store,
            recent: Arc::default(),
        }
    }

    /// Publishes a normal notice about a pod or the part of it at `field_path`
    /// (`spec.containers{web}`; empty for the whole pod).
    pub fn normal(&self, pod: &PodRef, field_path: &str, reason: &str, message: impl Into<String>) {
        self.publish(
            Subject::Pod(pod),
            field_path,
            Severity::Normal,
            reason,
            message.into(),
        );
    }

    /// Publishes a warning about a pod or the part of it at `field_path`.
    pub fn warning(
        &self,
        pod: &PodRef,
        field_path: &str,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.publish(
            Subject::Pod(pod),
            field_path,
            Severity::Warning,
            reason,
            message.into(),
        );
    }

    /// Publishes a warning about a pod with annotations, which its event gets.
    pub fn annotated_warning(
        &self,
        pod: &PodRef,
        reason: &str,
        message: impl Into<String>,
        annotations: impl IntoIterator<Item = (String, String)>,
    ) {
        let notice = Notice {
            pod: Some(pod.clone()),
            annotations: annotations.into_iter().collect(),
            ..notice("", Severity::Warning, reason, message.into())
        };
        self.publish_notice(notice);
    }

    /// Publishes a notice about the node.
    pub fn node(&self, severity: Severity, reason: &str, message: impl Into<String>) {
        self.publish(Subject::Node, "", severity, reason, message.into());
    }

    /// Publishes a notice about another object of the cluster.
    pub fn object(
        &self,
        object: ObjectRef,
        severity: Severity,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.publish(
            Subject::Object(object),
            "",
            severity,
            reason,
            message.into(),
        );
    }

    fn publish(
        &self,
        subject: Subject<'_>,
        field_path: &str,
        severity: Severity,
        reason: &str,
        message: String,
    ) {
        let (pod, object) = match subject {
            Subject::Pod(pod) => (Some(pod.clone()), None),
            Subject::Object(object) => (None, Some(object)),
            Subject::Node => (None, None),
        };
        self.publish_notice(Notice {
            pod,
            object,
            ..notice(field_path, severity, reason, message)
        });
    }

    /// Publishes a notice with a new id and the current time.
    fn publish_notice(&self, notice: Notice) {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.count += 1;
        let id = format!("{}-{}", self.incarnation, recent.count);
        recent.oldest_first.push_back((now, id.clone()));
        let notice = Notice {
            id: id.clone(),
            at: Some(to_wire(Timestamp::now())),
            ..notice
        };
        self.store.upsert(id, notice);
        self.remove_expired(&mut recent, now);
        if !recent.has_expiry
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            recent.has_expiry = true;
            runtime.spawn(self.clone().expire());
        }
    }

    fn remove_expired(&self, recent: &mut RecentNotices, now: Instant) {
        while let Some((at, id)) = recent.oldest_first.front() {
            if recent.oldest_first.len() <= MAX_NOTICES && now.duration_since(*at) < RETENTION {
                break;
            }
            self.store.remove(id);
            recent.oldest_first.pop_front();
        }
    }

    /// Removes notices as they expire, until there are none.
    async fn expire(self) {
        let mut until = Instant::now() + RETENTION;
        loop {
            tokio::time::sleep_until(until).await;
            let now = Instant::now();
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove_expired(&mut recent, now);
            let Some((oldest, _)) = recent.oldest_first.front() else {
                recent.oldest_first = VecDeque::new();
                recent.has_expiry = false;
                return;
            };
            until = (*oldest + RETENTION).max(now + EXPIRY_BATCH);
        }
    }
}

/// A notice without id, time and subject.
fn notice(field_path: &str, severity: Severity, reason: &str, message: String) -> Notice {
    Notice {
        field_path: field_path.to_owned(),
        severity: severity.into(),
        reason: reason.to_owned(),
        message,
        ..Notice::default()
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
    fn the_oldest_are_dropped_and_ids_are_unique() {
        let notices = Notices::new("pleg", "1");
        for n in 0..MAX_NOTICES + 10 {
            notices.normal(&PodRef::default(), "", "Pulled", format!("{n}"));
        }
        let snapshot = notices.store.snapshot();
        assert_eq!(snapshot.len(), MAX_NOTICES);
        assert!(snapshot.contains_key(&format!("pleg-1-{}", MAX_NOTICES + 10)));
        assert!(!snapshot.contains_key("pleg-1-10"));
    }

    /// Also without a later notice.
    #[tokio::test(start_paused = true)]
    async fn expired_notices_are_removed() {
        let notices = Notices::new("pleg", "1");
        let publish = || notices.normal(&PodRef::default(), "", "Pulled", "");
        publish();
        tokio::time::sleep(RETENTION / 2).await;
        publish();
        tokio::time::sleep(RETENTION / 2 + Duration::from_secs(1)).await;
        assert_eq!(notices.store.snapshot().len(), 1);
        tokio::time::sleep(RETENTION / 2 + EXPIRY_BATCH).await;
        assert_eq!(notices.store.snapshot().len(), 0);
        publish();
        tokio::time::sleep(RETENTION + Duration::from_secs(1)).await;
        assert_eq!(notices.store.snapshot().len(), 0);
    }
}
