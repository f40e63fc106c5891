//! prober: probes of arbitrary pods in arbitrary states.

use jiff::SignedDuration;
use polylet_prober::convert;
use polylet_prober::manager::{ProbeManager, Results};
use polylet_prober::publisher::Publisher;
use polylet_watch::{Store, Update};

use super::{SOURCES, pod_update, stream_update, uid};
use crate::input::{frames, text};
use crate::targets::manifests::now;

/// Runs the manager with the inputs of the frames.
pub(in crate::targets) fn run(data: &[u8]) {
    let mut now = now();
    let results = Results::new();
    let publisher = Publisher::new(Store::new("fuzz"), &results);
    let mut manager = ProbeManager::new(&results);
    let mut attempts = Vec::new();
    for frame in frames(data).iter().take(64) {
        let uid = uid(frame);
        match frame.select(7) {
            0 | 1 => {
                let update = pod_update(frame, SOURCES[0]);
                if let Some(change) = convert::pod_change(SOURCES[0], update) {
                    manager.handle_pod(change, now);
                }
            }
            2 => {
                let Some(pod) = frame.message() else { continue };
                if let Some(change) = convert::pod_change(SOURCES[0], Update::Upsert(uid, pod)) {
                    manager.handle_pod(change, now);
                }
            }
            kind @ (3 | 4) => {
                let update = match (kind, frame.message()) {
                    (3, Some(state)) => Update::Upsert(uid, state),
                    _ => stream_update(frame, uid),
                };
                let address = || "192.168.0.1".to_owned();
                if let Some(change) = convert::observed_change(update, address, |at| at)
                    && manager.handle_observed(change, now)
                {
                    publisher.publish_synced(manager.unsaved());
                }
            }
            5 => {
                let seconds = frame.content.iter().map(|byte| i64::from(*byte)).sum();
                now = now
                    .checked_add(SignedDuration::from_secs(seconds))
                    .unwrap_or(now);
            }
            _ => {
                for attempt in std::mem::take(&mut attempts) {
                    let message = text(frame.content);
                    let result = match frame.content.first() {
                        None => None,
                        Some(0) => Some(Ok(())),
                        Some(_) => Some(Err(message.to_owned())),
                    };
                    manager.complete_simulated(&attempt, result, now);
                }
            }
        }
        attempts.extend(manager.start_due(now));
        if let Some(changes) = manager.take_unsaved() {
            publisher.publish(&changes);
        }
    }
}
