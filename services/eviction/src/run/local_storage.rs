//! Holds pods to the limits they set on their own use of the disk.
//!
//! Counting files is a walk, so only pods with such limits are counted, beside the rounds and one
//! count at a time; a pod whose files are many is counted less often.

use std::collections::BTreeMap;

use jiff::Timestamp;
use tokio::sync::oneshot;

use super::{ROUND, Run};
use crate::core::limits::pause;
use crate::core::round::Verdict;
use crate::core::signal::Starved;
use crate::usage::Counted;

/// The grace of such an end, as upstream: at once.
const GRACE_SECONDS: u32 = 1;

/// The count under way, and what is not to be counted again yet.
#[derive(Default)]
pub(super) struct LocalStorage {
    under_way: Option<oneshot::Receiver<Vec<Counted>>>,
    not_before: BTreeMap<String, Timestamp>,
}

impl LocalStorage {
    /// The outcome of the count under way; waits for ever when there is none.
    pub(super) async fn counted(&mut self) -> Vec<Counted> {
        let Some(under_way) = &mut self.under_way else {
            return std::future::pending().await;
        };
        // A count that was broken off has counted nothing.
        let counted = under_way.await.unwrap_or_default();
        self.under_way = None;
        counted
    }
}

impl Run {
    /// Begins to count those that are due.
    pub(super) fn count_local_storage(&mut self) {
        if !self.settings.local_limits || !self.desk.heard_states || self.local.under_way.is_some()
        {
            return;
        }
        let now = Timestamp::now();
        let pods = &self.desk.pods;
        let not_before = &mut self.local.not_before;
        not_before.retain(|uid, at| *at > now && pods.held.contains_key(uid));
        let due = pods.running().filter_map(|(uid, held)| {
            let wanted = pods.wanted.get(uid)?;
            let leaves = self.desk.orders.iter().any(|(ordered, _)| ordered == uid);
            // Upstream evicts no critical pod for its limits, either.
            let spared = wanted.critical || leaves || not_before.contains_key(uid);
            (!wanted.limits.is_empty() && !spared)
                .then(|| (uid.clone(), wanted.clone(), held.clone()))
        });
        let due: Vec<_> = due.collect();
        if due.is_empty() {
            return;
        }
        let (tell, told) = oneshot::channel();
        let counting = self.sampler.count(due);
        self.ctx.background("count local storage", async move {
            // Nobody listens only when the process is about to end.
            let _ = tell.send(counting.await);
        });
        self.local.under_way = Some(told);
    }

    /// Orders off the node whoever uses more than it may.
    pub(super) fn hold_to_limits(&mut self, counted: Vec<Counted>) {
        let now = Timestamp::now();
        let one_filesystem = self.desk.rules.one_filesystem;
        for Counted { uid, used, took } in counted {
            let wait = pause(took, ROUND);
            if !wait.is_zero() {
                let at = now.checked_add(wait).unwrap_or(now);
                self.local.not_before.insert(uid.clone(), at);
            }
            let Some(wanted) = self.desk.pods.wanted.get(&uid) else {
                continue;
            };
            let ordered = self.desk.orders.iter().any(|(ordered, _)| *ordered == uid);
            let stays = wanted.critical || ordered || !self.desk.pods.is_running(&uid);
            let Some(message) = wanted.limits.exceeded(&used, one_filesystem) else {
                continue;
            };
            if stays {
                continue;
            }
            let verdict = Verdict {
                namespace: wanted.namespace.clone(),
                name: wanted.name.clone(),
                uid,
                starved: Starved::Disk,
                grace_seconds: GRACE_SECONDS,
                message,
                disruption_target: false,
            };
            self.desk.give(verdict, now);
        }
    }
}
