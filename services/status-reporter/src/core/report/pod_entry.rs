//! The status of one pod: desired, at the API server, and the request that is pending.

use std::time::Duration;

use polylet_model::PodUid;
use polylet_model::hash::fnv1a_32;
use polylet_schedule::BackoffPolicy;

use super::desired::{ApiAction, ApiStatus, DesiredStatus, Priority, is_deletable, next_action};
use super::request::{PatchResult, StatusRequest};
use crate::core::shared_status::SharedStatus;

/// How long an intermediate step waits to be batched with later ones, longer for each other waiting
/// pod: when many pods start at once each takes longer, by about the time of one start for each, and
/// their intermediate statuses, and the events that wait with them, would slow the others down.
const BATCH_DELAY: Duration = Duration::from_millis(400);
const BATCH_DELAY_PER_POD: Duration = Duration::from_millis(200);
const MAX_BATCH_DELAY: Duration = Duration::from_secs(20);
/// How long the status of a pod that is about to end waits for the last one. Network plugins that take
/// longer are not normal.
const ENDING_DELAY: Duration = Duration::from_secs(10);
/// The least time between two batched patches of one pod, so that even a slow start costs one.
const MIN_BATCH_INTERVAL: Duration = Duration::from_secs(2);
/// How long the watch may take to deliver a patched status.
const WATCH_TIMEOUT: Duration = Duration::from_secs(3);
/// A status that others overwrite is repaired at once, and then at most this often.
const REPAIR_INTERVAL: Duration = Duration::from_secs(10);
/// The repair interval doubles this often when the API server does not store what is patched: it is
/// older, or an admission webhook changes it.
const MAX_REPAIR_DOUBLINGS: u32 = 6;
/// Delays after rejections.
const REJECTED: BackoffPolicy =
    BackoffPolicy::new(Duration::from_millis(200), Duration::from_secs(10));

#[derive(Default)]
pub(super) struct PodEntry {
    pub(super) desired: Option<DesiredStatus>,
    pub(super) api: Option<ApiStatus>,
    /// The status in the answer to a patch and the time until which the watch is to deliver it.
    pub(super) patched: Option<(SharedStatus, Duration)>,
    pub(super) pending: Option<PendingRequest>,
    pub(super) in_flight: bool,
    pub(super) deleted: bool,
    pub(super) failures: u32,
    pub(super) not_before: Duration,
    /// Start and length of the current batch.
    pub(super) batch: Option<(Duration, Duration)>,
    /// When a batched patch was sent last.
    pub(super) batched_at: Option<Duration>,
    /// The desired status when the API server was last up to date.
    pub(super) settled: Option<DesiredStatus>,
    pub(super) repaired_at: Option<Duration>,
    /// The desired status when the request in flight was sent.
    pub(super) sent: Option<DesiredStatus>,
    /// When the desired status changed first of what the API server does not have.
    pub(super) changed_at: Option<Duration>,
    /// The same of the request in flight.
    pub(super) sent_change: Option<Duration>,
    /// Consecutive patches that the API server accepted without storing them.
    pub(super) ineffective_patches: u32,
}

/// The next request of a pod.
pub(super) struct PendingRequest {
    pub(super) action: ApiAction,
    pub(super) priority: Priority,
    pub(super) due: Duration,
    /// It repairs a status that others have changed or the API server does not store, or follows a
    /// rejection. Either may go on without end, so that it is no sign of work.
    pub(super) is_repeat: bool,
}

impl PodEntry {
    /// Recomputes the pending request; `waiting` other pods have one too that is no repeat. While a request
    /// is in flight there is none: what follows depends on its answer.
    pub(super) fn update(&mut self, waiting: usize, now: Duration) {
        let before = self.pending.take();
        if self.in_flight {
            return;
        }
        let (Some(desired), Some(api)) = (&self.desired, &self.api) else {
            self.batch = None;
            return;
        };
        // An older API server that does not store some field is never up to date.
        let ineffective = self.ineffective_patches > 0;
        let next = |api: &ApiStatus| {
            if ineffective && is_deletable(desired, api) {
                Some((ApiAction::Delete, Priority::Immediate))
            } else {
                next_action(desired, api)
            }
        };
        let mut action = next(api);
        if let Some((status, until)) = &self.patched {
            let delivered = action.is_none() || *status == api.status;
            if delivered || now >= *until {
                self.patched = None;
            } else {
                let known = ApiStatus {
                    uid: api.uid.clone(),
                    status: status.clone(),
                };
                let of_watch = action.take();
                action = next(&known);
                if action.is_none()
                    && let Some((action, priority)) = of_watch
                {
                    // The watch is behind, or others have written since: decided at the timeout.
                    self.pending = Some(PendingRequest {
                        action,
                        priority,
                        due: *until,
                        is_repeat: false,
                    });
                    return;
                }
            }
        }
        let action = action.filter(|(action, _)| *action != ApiAction::Delete || !self.deleted);
        let Some((action, priority)) = action else {
            self.batch = None;
            self.changed_at = None;
            if self.patched.is_none() {
                self.settled = Some(desired.clone());
            }
            return;
        };
        let batched = priority >= Priority::Batched;
        let mut due = now;
        if batched {
            let first = self.changed_at.unwrap_or(now);
            let (since, delay) = self.batch.get_or_insert((first, Duration::ZERO));
            // A batch is never shortened: the last of many pods that start has waited longest and
            // is about to be ready.
            let least = match priority {
                Priority::Ending => ENDING_DELAY,
                _ => batch_delay(waiting),
            };
            *delay = least.max(*delay);
            due = *since + *delay;
            let next_batch = self.batched_at.map(|sent| sent + MIN_BATCH_INTERVAL);
            due = due.max(next_batch.unwrap_or_default());
        }
        let drift = self.settled.as_ref() == Some(desired) && action != ApiAction::Delete;
        if let Some(repaired_at) = self.repaired_at.filter(|_| drift) {
            let doublings = self.ineffective_patches.min(MAX_REPAIR_DOUBLINGS);
            due = due.max(repaired_at + REPAIR_INTERVAL * (1 << doublings));
        }
        // An update does not delay a pending request, except a batched one, which may wait for more
        // pods that start, up to the longest delay.
        if let Some(before) = before.filter(|before| before.action == action && !batched) {
            due = due.min(before.due);
        }
        self.pending = Some(PendingRequest {
            action,
            priority,
            due: due.max(self.not_before),
            is_repeat: drift || self.failures > 0,
        });
    }

    /// Keeps the statuses as JSON alone, until they are read again.
    pub(super) fn drop_parsed(&mut self, own: &SharedStatus) {
        let desired = self.desired.iter_mut().map(|known| &mut known.status);
        let settled = self.settled.iter_mut().map(|known| &mut known.status);
        let api = self.api.iter_mut().map(|known| &mut known.status);
        for known in desired.chain(settled).chain(api) {
            *known = known.unparsed().shared_with([own]);
        }
    }

    /// Whether the pending request may change without a change of a status.
    pub(super) fn depends_on_time(&self) -> bool {
        let pending = self.pending.as_ref();
        self.patched.is_some() || pending.is_some_and(|p| p.priority >= Priority::Batched)
    }

    /// The pending request, to be sent.
    pub(super) fn request(&self, pod: &PodUid) -> Option<StatusRequest> {
        let (desired, api, pending) = (
            self.desired.as_ref()?,
            self.api.as_ref()?,
            self.pending.as_ref()?,
        );
        Some(StatusRequest {
            pod: pod.clone(),
            uid: api.uid.clone(),
            namespace: desired.namespace.clone(),
            name: desired.name.clone(),
            action: pending.action.clone(),
        })
    }

    /// Records that the pending request was sent.
    pub(super) fn on_sent(&mut self, now: Duration) {
        let pending = self.pending.take();
        if matches!(&pending, Some(pending) if pending.priority >= Priority::Batched) {
            self.batched_at = Some(now);
        }
        let patches = pending.is_some_and(|pending| pending.action != ApiAction::Delete);
        if patches && self.desired == self.settled {
            self.repaired_at = Some(now);
        }
        self.sent.clone_from(&self.desired);
        self.sent_change = self.changed_at.take().filter(|_| patches);
        self.batch = None;
        self.in_flight = true;
    }

    /// Records the result of the request in flight. After a patch: the time since the first change in
    /// it.
    pub(super) fn on_completed(
        &mut self,
        request: &StatusRequest,
        result: PatchResult,
        now: Duration,
    ) -> Option<Duration> {
        self.in_flight = false;
        let sent_change = self.sent_change.take();
        let patched = matches!(result, PatchResult::Patched(_));
        if !patched {
            // The next request has this change, too.
            self.changed_at = sent_change.or(self.changed_at);
        }
        let same_pod = self.api.as_ref().is_some_and(|api| api.uid == request.uid);
        match result {
            PatchResult::Patched(status) => {
                self.failures = 0;
                self.check_effect(&status, now);
                let delivered = self.api.as_ref().is_some_and(|api| api.status == status);
                self.patched = (same_pod && !delivered).then(|| (status, now + WATCH_TIMEOUT));
            }
            PatchResult::Deleted => {
                self.failures = 0;
                self.deleted = same_pod;
            }
            PatchResult::Rejected => {
                self.failures = self.failures.saturating_add(1);
                let delay = rejected_delay(request.pod.as_str(), self.failures);
                self.not_before = if same_pod {
                    now + delay
                } else {
                    Duration::ZERO
                };
            }
            PatchResult::Unavailable(_) => {}
        }
        let since = sent_change.filter(|_| patched)?;
        Some(now.saturating_sub(since))
    }

    /// Compares the answer to a patch with what was sent: if fields are missing, repeating the patch
    /// helps little.
    fn check_effect(&mut self, status: &SharedStatus, now: Duration) {
        let (Some(sent), Some(api)) = (self.sent.take(), &self.api) else {
            return;
        };
        let answer = ApiStatus {
            uid: api.uid.clone(),
            status: status.clone(),
        };
        if matches!(next_action(&sent, &answer), Some((ApiAction::Patch(_), _))) {
            self.ineffective_patches = self.ineffective_patches.saturating_add(1);
            self.repaired_at = Some(now);
            self.settled = Some(sent);
        } else {
            self.ineffective_patches = 0;
        }
    }
}

/// The batch delay while so many other pods wait.
fn batch_delay(waiting: usize) -> Duration {
    let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
    (BATCH_DELAY + BATCH_DELAY_PER_POD.saturating_mul(waiting)).min(MAX_BATCH_DELAY)
}

/// The delay after consecutive rejections, with a jitter of up to a half that differs by pod.
fn rejected_delay(pod: &str, failures: u32) -> Duration {
    let drawn = fnv1a_32(format!("{pod} {failures}").as_bytes());
    let share = f64::from(drawn) / f64::from(u32::MAX);
    REJECTED.delay_with_jitter(failures, share / 2.0)
}
