//! AttemptPermits to start attempts, fair between pods.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use polylet_model::ids::PodUid;
use polylet_schedule::{FairLimits, FairPlace, FairQueue};
use tokio::sync::oneshot;

/// An attempt holds its permit for at most this time. One that takes longer makes its pod slow.
pub(super) const MAX_PERMIT_TIME: Duration = Duration::from_secs(1);

/// The same for pods that were slow: their attempts wait rather than work, and are many when a server
/// is gone.
const SLOW_PERMIT_TIME: Duration = Duration::from_millis(100);

type PermitQueue = FairQueue<PodUid, oneshot::Sender<AttemptPermit>>;

/// A bounded number of permits. Cheap to clone.
#[derive(Clone)]
pub(super) struct AttemptPermits {
    queue: Rc<RefCell<PermitQueue>>,
}

impl AttemptPermits {
    pub(super) fn new(limits: FairLimits) -> Self {
        AttemptPermits {
            queue: Rc::new(RefCell::new(FairQueue::new(limits))),
        }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self, pod: &PodUid) -> AttemptPermit {
        let (sender, receiver) = oneshot::channel();
        self.queue.borrow_mut().push(pod.clone(), sender);
        self.grant();
        match receiver.await {
            Ok(permit) => permit,
            // The queue drops no sender: it is as old as this future.
            Err(_) => std::future::pending().await,
        }
    }

    /// Sets whether an attempt of the pod took longer than [`MAX_PERMIT_TIME`].
    pub(super) fn set_slow(&self, pod: &PodUid, slow: bool) {
        self.queue.borrow_mut().set_slow(pod, slow);
    }

    fn grant(&self) {
        loop {
            let Some(start) = self.queue.borrow_mut().pop() else {
                return;
            };
            if start.item.is_closed() {
                self.queue.borrow_mut().finish(start.place);
                continue;
            }
            let permit = AttemptPermit {
                permits: self.clone(),
                place: Some(start.place),
            };
            // Not closed, and there is no other thread.
            let _ = start.item.send(permit);
        }
    }
}

/// A permit; dropping it returns it.
pub(super) struct AttemptPermit {
    permits: AttemptPermits,
    place: Option<FairPlace<PodUid>>,
}

impl AttemptPermit {
    /// How long it may be held.
    pub(super) fn time(&self) -> Duration {
        match &self.place {
            Some(place) if place.is_slow() => SLOW_PERMIT_TIME,
            _ => MAX_PERMIT_TIME,
        }
    }
}

impl Drop for AttemptPermit {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.permits.queue.borrow_mut().finish(place);
            self.permits.grant();
        }
    }
}

#[cfg(test)]
mod tests;
