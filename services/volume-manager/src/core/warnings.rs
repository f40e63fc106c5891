//! When the warnings of volumes that cannot be mounted are emitted, and emitted again.

use std::collections::BTreeMap;

use jiff::Timestamp;
use polylet_model::PodUid;
use polylet_schedule::DueQueue;

use super::status::{PodVolumeStatus, VolumePhase, VolumeStatus};
use super::status_messages::event_reason;
use super::warning_repeat::WarningRepeat;

/// Uid of the pod, and message.
type WarningKey = (PodUid, String);

/// The warnings that stand, by pod and message.
#[derive(Debug, Default)]
pub struct WarningSchedule {
    pods: BTreeMap<PodUid, BTreeMap<String, EmittedWarning>>,
    due: DueQueue<WarningKey, Timestamp>,
}

#[derive(Debug, Clone, Copy)]
struct EmittedWarning {
    repeat: Option<WarningRepeat>,
    count: u32,
}

impl WarningSchedule {
    /// Applies the status of a pod; returns the new messages, which are to be emitted now.
    pub fn update(&mut self, status: &PodVolumeStatus, now: Timestamp) -> Vec<String> {
        let uid = &status.pod.uid;
        let before = self.pods.remove(uid).unwrap_or_default();
        let mut present = BTreeMap::new();
        let mut new = Vec::new();
        for volume in status.volumes.iter().filter(|volume| is_warning(volume)) {
            let (message, repeat) = (&volume.message, volume.warning_repeat);
            if present.contains_key(message) {
                continue;
            }
            let known = before.get(message).filter(|known| known.repeat == repeat);
            let warning = known
                .copied()
                .unwrap_or(EmittedWarning { repeat, count: 1 });
            if !before.contains_key(message) {
                new.push(message.clone());
            }
            if known.is_none() {
                self.schedule(uid, message, warning, now);
            }
            present.insert(message.clone(), warning);
        }
        for message in before.into_keys() {
            if !present.contains_key(&message) {
                self.due.cancel(&(uid.clone(), message));
            }
        }
        if !present.is_empty() {
            self.pods.insert(uid.clone(), present);
        }
        new
    }

    /// Forgets a pod.
    pub fn remove(&mut self, uid: &PodUid) {
        for message in self.pods.remove(uid).unwrap_or_default().into_keys() {
            self.due.cancel(&(uid.clone(), message));
        }
    }

    /// Takes the warnings that are to be emitted again: uids and messages.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<WarningKey> {
        let mut taken = Vec::new();
        while let Some((uid, message)) = self.due.pop_due(now) {
            let standing = self.pods.get_mut(&uid);
            let Some(warning) = standing.and_then(|pod| pod.get_mut(&message)) else {
                continue;
            };
            warning.count = warning.count.saturating_add(1);
            let warning = *warning;
            self.schedule(&uid, &message, warning, now);
            taken.push((uid, message));
        }
        taken
    }

    /// When the next warning is to be emitted again.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.next_due()
    }

    fn schedule(&mut self, uid: &PodUid, message: &str, warning: EmittedWarning, now: Timestamp) {
        let key = (uid.clone(), message.to_owned());
        let delay = warning.repeat.map(|repeat| repeat.delay(warning.count));
        self.due
            .set_opt(key, delay.and_then(|delay| now.checked_add(delay).ok()));
    }
}

/// Whether an event is emitted for the status of a volume.
fn is_warning(volume: &VolumeStatus) -> bool {
    let not_mounted = matches!(volume.phase, VolumePhase::Waiting | VolumePhase::Failed);
    event_reason(&volume.message)
        .is_some_and(|reason| not_mounted || reason == "VolumeResizeFailed")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::pod::PodName;

    fn status(messages: &[(&str, Option<WarningRepeat>)]) -> PodVolumeStatus {
        let volume = |(index, (message, repeat)): (usize, &(&str, Option<WarningRepeat>))| {
            let name = format!("v{index}");
            let mut volume = VolumeStatus::new(&name, VolumePhase::Waiting, *message);
            volume.warning_repeat = *repeat;
            volume
        };
        PodVolumeStatus {
            pod: PodName {
                uid: "u".into(),
                ..PodName::default()
            },
            sequence: 1,
            volumes: messages.iter().enumerate().map(volume).collect(),
            waiting_since: None,
            reject_at: None,
        }
    }

    /// The seconds at which the only warning is emitted, up to a limit.
    fn emitted(repeat: Option<WarningRepeat>, limit: f64) -> Vec<f64> {
        let mut schedule = WarningSchedule::default();
        let status = status(&[("MountVolume.SetUp failed for volume \"v\" : x", repeat)]);
        let start = Timestamp::UNIX_EPOCH;
        let mut times = vec![0.0; schedule.update(&status, start).len()];
        while let Some(at) = schedule.next_due() {
            let seconds = at.duration_since(start).as_secs_f64();
            if seconds > limit {
                break;
            }
            // A status that is computed in between changes nothing.
            assert!(schedule.update(&status, at).is_empty());
            let due = schedule.take_due(at);
            times.extend(due.iter().map(|_| seconds));
        }
        times
    }

    #[test]
    fn warnings_repeat_as_those_of_upstream() {
        let retries = [
            0.0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 127.5, 249.5, 371.5,
        ];
        assert_eq!(emitted(Some(WarningRepeat::Retry), 400.0), retries);
        assert_eq!(
            emitted(Some(WarningRepeat::Sync), 40.0),
            [0.0, 12.5, 25.0, 37.5]
        );
        assert_eq!(
            emitted(Some(WarningRepeat::Timeout), 300.0),
            [0.0, 135.5, 271.0]
        );
        // That of a failed operation is repeated by its next failure.
        assert_eq!(emitted(None, 1e6), [0.0]);
    }

    #[test]
    fn a_warning_ends_with_its_cause_and_begins_anew() {
        let mut schedule = WarningSchedule::default();
        let now = Timestamp::UNIX_EPOCH;
        let one = ("MountVolume.SetUp failed 1", Some(WarningRepeat::Retry));
        let two = ("MountVolume.SetUp failed 2", Some(WarningRepeat::Retry));
        assert_eq!(
            schedule.update(&status(&[one, one, two]), now),
            [one.0, two.0]
        );
        assert!(schedule.update(&status(&[one]), now).is_empty());
        let later = now + Duration::from_secs(1);
        assert_eq!(schedule.take_due(later), [("u".into(), one.0.to_owned())]);
        assert!(
            schedule
                .update(&status(&[("being set up", None)]), later)
                .is_empty()
        );
        assert_eq!(schedule.next_due(), None);
        assert_eq!(schedule.update(&status(&[one]), later), [one.0]);
        schedule.remove(&"u".into());
        assert_eq!(schedule.next_due(), None);
        assert!(schedule.pods.is_empty());
    }
}
