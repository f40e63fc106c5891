//! Notices about pods, the node and other objects: short-lived state that status-reporter turns into
//! Kubernetes events. Every service serves its own.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use jiff::Timestamp;
use polylet_watch::{AppendLog, WatchWire};
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
    /// What ids begin with.
    source: Arc<str>,
    /// Without their ids, which are told by their numbers.
    log: AppendLog<Notice>,
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
    /// When each notice of the log was published.
    oldest_first: VecDeque<Instant>,
    /// Whether a task waits for the oldest to expire.
    has_expiry: bool,
}

impl Notices {
    pub(crate) fn new(service: &str, incarnation: &str) -> Notices {
        Notices {
            source: format!("{service}-{incarnation}").into(),
            log: AppendLog::new(incarnation),
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

    /// Publishes a notice with the next number and the current time.
    fn publish_notice(&self, notice: Notice) {
        let now = Instant::now();
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.oldest_first.push_back(now);
        self.log.push(&Notice {
            at: Some(to_wire(Timestamp::now())),
            ..notice
        });
        self.remove_expired(&mut recent, now);
        if !recent.has_expiry
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            recent.has_expiry = true;
            runtime.spawn(self.clone().expire());
        }
    }

    fn remove_expired(&self, recent: &mut RecentNotices, now: Instant) {
        let published = &mut recent.oldest_first;
        let expired = |at: &Instant| now.duration_since(*at) >= RETENTION;
        let expired = published.iter().take_while(|at| expired(at)).count();
        let count = expired.max(published.len().saturating_sub(MAX_NOTICES));
        published.drain(..count);
        self.log.remove_oldest(count);
    }

    /// Removes notices as they expire, until there are none.
    async fn expire(self) {
        let mut until = Instant::now() + RETENTION;
        loop {
            tokio::time::sleep_until(until).await;
            let now = Instant::now();
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            self.remove_expired(&mut recent, now);
            let Some(oldest) = recent.oldest_first.front() else {
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
        let source = self.source.clone();
        let changes = self.log.serve(after).map(move |change| {
            let id = |number: u64| format!("{source}-{number}");
            let change = change.map(|(number, notice)| Notice {
                id: id(number),
                ..notice
            });
            Ok(WatchNoticesResponse::from_change(change.map_key(id)))
        });
        Ok(Response::new(Box::pin(changes)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use polylet_wire::notice::v1::watch_notices_response::Change;

    use super::*;

    fn numbers(notices: &Notices) -> Vec<u64> {
        let all = notices.log.snapshot().into_iter();
        all.map(|(number, _)| number).collect()
    }

    #[tokio::test]
    async fn the_oldest_are_dropped_and_ids_are_unique() {
        let notices = Notices::new("pleg", "1");
        for n in 0..MAX_NOTICES + 10 {
            notices.normal(&PodRef::default(), "", "Pulled", format!("{n}"));
        }
        let last = MAX_NOTICES as u64 + 10;
        assert_eq!(numbers(&notices), (11..=last).collect::<Vec<_>>());
        let request = Request::new(WatchNoticesRequest::default());
        let mut watched = notices.watch_notices(request).await.unwrap().into_inner();
        let mut ids = BTreeSet::new();
        loop {
            match watched.next().await.unwrap().unwrap().change.unwrap() {
                Change::Upsert(notice) => assert!(ids.insert(notice.id)),
                Change::Reset(_) => assert!(ids.is_empty()),
                Change::Remove(key) => panic!("{key:?}"),
                Change::Synced(_) => break,
            }
        }
        assert_eq!(ids.len(), MAX_NOTICES);
        assert!(ids.contains("pleg-1-11") && ids.contains(&format!("pleg-1-{last}")));
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
        assert_eq!(numbers(&notices).len(), 1);
        tokio::time::sleep(RETENTION / 2 + EXPIRY_BATCH).await;
        assert_eq!(numbers(&notices).len(), 0);
        publish();
        tokio::time::sleep(RETENTION + Duration::from_secs(1)).await;
        assert_eq!(numbers(&notices).len(), 0);
    }
}
