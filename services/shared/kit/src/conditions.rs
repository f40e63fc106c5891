//! Health conditions: what impairs this process at the moment, by name, for `polylet status`.
//!
//! A condition is state, not an event: it is set while something is wrong and cleared when it is
//! right again. The first setting and the clearing are logged; `GetInfo` serves the current ones.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use polylet_wire::lifecycle::v1 as wire;

use crate::{report, status_change};

/// The most objects of one reason; further ones are ignored.
const MAX_OBJECTS: usize = 256;
/// The most objects of one reason that are served; the others are counted.
const MAX_SERVED: usize = 16;
/// The longest message, in characters.
const MAX_MESSAGE: usize = 512;

/// The current conditions of a process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct HealthConditions {
    by_reason: Arc<Mutex<ByReason>>,
}

/// Reasons are literals, so there are few.
type ByReason = BTreeMap<&'static str, BTreeMap<String, ActiveCondition>>;

#[derive(Debug, Clone)]
struct ActiveCondition {
    message: String,
    since: Timestamp,
    /// When it ends by itself; `None` for one that is cleared.
    until: Option<Instant>,
}

impl HealthConditions {
    /// Those of this process, for code without a [`Ctx`](crate::Ctx): a process runs one service.
    pub fn of_process() -> HealthConditions {
        static PROCESS: LazyLock<HealthConditions> = LazyLock::new(HealthConditions::default);
        PROCESS.clone()
    }

    /// Sets a condition, or updates its message. `object` is what it concerns, such as a path or a
    /// pod as `namespace/name`; empty for the whole service.
    pub fn set(&self, reason: &'static str, object: impl Display, message: impl Display) {
        self.insert(reason, one_line(object), one_line(message), None);
    }

    /// The same for what happens now and then, such as a request that is refused: the condition ends
    /// when this was not called for `duration`.
    pub fn set_for(
        &self,
        reason: &'static str,
        object: impl Display,
        message: impl Display,
        duration: Duration,
    ) {
        let until = Instant::now().checked_add(duration);
        self.insert(reason, one_line(object), one_line(message), until);
    }

    fn insert(
        &self,
        reason: &'static str,
        object: String,
        message: String,
        until: Option<Instant>,
    ) {
        let mut by_reason = self.lock();
        let objects = by_reason.entry(reason).or_default();
        if objects.len() >= MAX_OBJECTS {
            remove_ended(reason, objects);
        }
        if let Some(known) = objects.get_mut(&object) {
            (known.message, known.until) = (message, until);
            return;
        }
        if objects.len() < MAX_OBJECTS {
            tracing::warn!(reason, object, detail = message, "health condition set");
            let since = Timestamp::now();
            let condition = ActiveCondition {
                message,
                since,
                until,
            };
            objects.insert(object, condition);
        }
    }

    /// Clears a condition, if it is set.
    pub fn clear(&self, reason: &'static str, object: impl Display) {
        let mut by_reason = self.lock();
        // Conditions are rarely set: nothing is allocated for one that is not.
        let Some(objects) = by_reason.get_mut(reason) else {
            return;
        };
        let object = one_line(object);
        if let Some(condition) = objects.remove(&object) {
            log_cleared(reason, &object, &condition);
        }
        if objects.is_empty() {
            by_reason.remove(reason);
        }
    }

    /// Sets the conditions of one reason, by object, and clears all others of this reason.
    pub fn replace(
        &self,
        reason: &'static str,
        current: impl IntoIterator<Item = (String, String)>,
    ) {
        let current: BTreeMap<String, String> = current
            .into_iter()
            .map(|(object, message)| (one_line(object), message))
            .collect();
        if let Some(objects) = self.lock().get_mut(reason) {
            objects.retain(|object, condition| {
                let stays = current.contains_key(object);
                if !stays {
                    log_cleared(reason, object, condition);
                }
                stays
            });
        }
        for (object, message) in current {
            self.set(reason, object, message);
        }
    }

    /// Sets the condition for an error and clears it for a success.
    pub fn record<T, E: Error + 'static>(
        &self,
        reason: &'static str,
        object: impl Display,
        result: &Result<T, E>,
    ) {
        match result {
            Ok(_) => self.clear(reason, object),
            Err(error) => self.set(reason, object, report(error)),
        }
    }

    /// The current conditions for `GetInfo`. Of many objects with one reason, those that are
    /// affected longest, and the number of the others.
    pub fn to_wire(&self) -> Vec<wire::HealthCondition> {
        let mut by_reason = self.lock();
        by_reason.retain(|reason, objects| {
            remove_ended(reason, objects);
            !objects.is_empty()
        });
        let mut all = Vec::new();
        for (reason, objects) in by_reason.iter() {
            let mut objects: Vec<_> = objects.iter().collect();
            objects.sort_by_key(|(_, condition)| condition.since);
            let others = objects.split_off(objects.len().min(MAX_SERVED));
            let to_wire = |object: &str, message: &str, since| wire::HealthCondition {
                reason: (*reason).to_owned(),
                object: object.to_owned(),
                message: message.to_owned(),
                since: Some(polylet_wire::time::to_wire(since)),
            };
            let served = objects.iter();
            all.extend(served.map(|(object, c)| to_wire(object, &c.message, c.since)));
            if let Some((_, first)) = others.first() {
                let message = format!("and {} more", others.len());
                all.push(to_wire("", &message, first.since));
            }
        }
        all
    }

    fn lock(&self) -> MutexGuard<'_, ByReason> {
        self.by_reason
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the conditions whose time is over.
fn remove_ended(reason: &'static str, objects: &mut BTreeMap<String, ActiveCondition>) {
    let now = Instant::now();
    objects.retain(|object, condition| {
        let stays = condition.until.is_none_or(|until| now < until);
        if !stays {
            log_cleared(reason, object, condition);
        }
        stays
    });
}

fn log_cleared(reason: &'static str, object: &str, condition: &ActiveCondition) {
    status_change::notify();
    let lasted = Timestamp::now().duration_since(condition.since);
    tracing::info!(reason, object, ?lasted, "health condition cleared");
}

/// Text for a terminal: bounded, and without control characters, as parts of it may be foreign.
fn one_line(text: impl Display) -> String {
    let text = text.to_string();
    if text.len() <= MAX_MESSAGE && !text.contains(char::is_control) {
        return text;
    }
    text.chars()
        .take(MAX_MESSAGE)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(conditions: &HealthConditions) -> Vec<(String, String, String)> {
        let all = conditions.to_wire().into_iter();
        all.map(|c| (c.reason, c.object, c.message)).collect()
    }

    fn expected(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        let owned = |(a, b, c): &(&str, &str, &str)| (a.to_string(), b.to_string(), c.to_string());
        rows.iter().map(owned).collect()
    }

    #[test]
    fn a_condition_keeps_its_time_until_it_is_cleared() {
        let conditions = HealthConditions::default();
        conditions.set("StateNotWritten", "/a", "disk full");
        let since = conditions.to_wire()[0].since;
        conditions.set("StateNotWritten", "/a", "still\u{1b}[31m full\n");
        conditions.clear("StateNotWritten", "/b");
        conditions.clear("TooManyOpenFiles", "");
        let rows = expected(&[("StateNotWritten", "/a", "still [31m full ")]);
        assert_eq!(current(&conditions), rows);
        assert_eq!(conditions.to_wire()[0].since, since);
        conditions.clear("StateNotWritten", "/a");
        assert_eq!(current(&conditions), expected(&[]));
    }

    #[test]
    fn all_objects_of_one_reason_are_replaced() {
        let conditions = HealthConditions::default();
        let of = |names: &[&str]| -> Vec<(String, String)> {
            let named = |name: &&str| (name.to_string(), "hung".to_owned());
            names.iter().map(named).collect()
        };
        conditions.set("Other", "", "x");
        conditions.replace("PodNotMeasured", of(&["a", "b"]));
        conditions.replace("PodNotMeasured", of(&["b", "c"]));
        let rows = [
            ("Other", "", "x"),
            ("PodNotMeasured", "b", "hung"),
            ("PodNotMeasured", "c", "hung"),
        ];
        assert_eq!(current(&conditions), expected(&rows));
        conditions.replace("PodNotMeasured", of(&[]));
        assert_eq!(current(&conditions), expected(&rows[..1]));
    }

    #[test]
    fn results_set_and_clear() {
        let conditions = HealthConditions::default();
        let failed: Result<(), _> = Err(std::io::Error::other("no space"));
        conditions.record("StateNotWritten", "/a", &failed);
        let rows = expected(&[("StateNotWritten", "/a", "no space")]);
        assert_eq!(current(&conditions), rows);
        conditions.record::<_, std::io::Error>("StateNotWritten", "/a", &Ok(()));
        assert_eq!(current(&conditions), expected(&[]));
    }

    #[test]
    fn what_happened_once_ends_by_itself() {
        let conditions = HealthConditions::default();
        let hour = Duration::from_secs(3600);
        conditions.set_for("TooManyReviews", "a", "x", hour);
        for n in 0..MAX_OBJECTS {
            conditions.set_for("TooManyReviews", format!("b{n}"), "x", Duration::ZERO);
        }
        conditions.set_for("TooManyReviews", "c", "y", hour);
        conditions.set_for("TooManyReviews", "d", "y", Duration::ZERO);
        let rows = expected(&[("TooManyReviews", "a", "x"), ("TooManyReviews", "c", "y")]);
        assert_eq!(current(&conditions), rows);
        conditions.set_for("TooManyReviews", "a", "x", Duration::ZERO);
        conditions.clear("TooManyReviews", "c");
        assert_eq!(current(&conditions), expected(&[]));
    }

    #[test]
    fn many_objects_are_counted() {
        let conditions = HealthConditions::default();
        for n in 0..10_000 {
            conditions.set("PodNotMeasured", format!("default/p{n}"), "x".repeat(9000));
        }
        let all = conditions.to_wire();
        assert_eq!(all.len(), MAX_SERVED + 1);
        assert_eq!(all[0].message.len(), MAX_MESSAGE);
        let more = &all[MAX_SERVED].message;
        assert_eq!(*more, format!("and {} more", MAX_OBJECTS - MAX_SERVED));
    }
}
