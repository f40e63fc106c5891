//! Answers of one plugin, as long as they are good.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::super::docker_config::Logins;
use super::super::location;
use super::{Answer, CacheKeyType, Whose};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Image(String),
    Registry(String),
    Global,
}

/// What a plugin answered.
#[derive(Clone, Debug, Default)]
pub struct Cache {
    known: BTreeMap<(Key, Option<Whose>), (Logins, Timestamp)>,
}

impl Cache {
    /// What is still good for an image, and for whom it was given: its own answer, then its
    /// registry's, then the general one.
    pub fn get(&self, image: &str, whose: Option<&Whose>, now: Timestamp) -> Option<&Logins> {
        let keys = [
            Key::Image(image.to_owned()),
            Key::Registry(location::registry(image).to_owned()),
            Key::Global,
        ];
        keys.into_iter().find_map(|key| {
            let (logins, until) = self.known.get(&(key, whose.cloned()))?;
            (now <= *until).then_some(logins)
        })
    }

    /// Keeps an answer about an image as long as it says, else as long as the plugin's
    /// configuration does; no longer than the answer itself when that is zero.
    pub fn put(
        &mut self,
        (image, whose): (&str, Option<Whose>),
        answer: &Answer,
        default: Duration,
        now: Timestamp,
    ) {
        self.known.retain(|_, (_, until)| now <= *until);
        let good = answer.cache.unwrap_or(default);
        if good.is_zero() {
            return;
        }
        let key = match answer.reach {
            CacheKeyType::Image => Key::Image(image.to_owned()),
            CacheKeyType::Registry => Key::Registry(location::registry(image).to_owned()),
            CacheKeyType::Global => Key::Global,
        };
        // A time beyond what can be told is as good as the last one that can.
        let until = now.checked_add(good).unwrap_or(Timestamp::MAX);
        self.known
            .insert((key, whose), (answer.logins.clone(), until));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Account, ServiceAccount};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn answer(reach: CacheKeyType, cache: Option<u64>) -> Answer {
        Answer {
            reach,
            cache: cache.map(Duration::from_secs),
            logins: Logins::from([(format!("{reach:?}"), Default::default())]),
        }
    }

    fn whose(cache: &Cache, image: &str, now: i64) -> Option<String> {
        cache.get(image, None, at(now))?.keys().next().cloned()
    }

    #[test]
    fn the_nearest_answer_is_taken_while_it_is_good() {
        let hour = Duration::from_secs(3600);
        let mut cache = Cache::default();
        cache.put(
            ("r/a", None),
            &answer(CacheKeyType::Global, None),
            hour,
            at(0),
        );
        cache.put(
            ("r/a", None),
            &answer(CacheKeyType::Registry, Some(20)),
            hour,
            at(0),
        );
        cache.put(
            ("r/a", None),
            &answer(CacheKeyType::Image, Some(10)),
            hour,
            at(0),
        );
        for (image, now, expected) in [
            ("r/a", 10, Some("Image")),
            ("r/a", 11, Some("Registry")),
            ("r/b", 10, Some("Registry")),
            ("r/b", 21, Some("Global")),
            ("other/b", 0, Some("Global")),
            ("r/a", 3601, None),
        ] {
            assert_eq!(
                whose(&cache, image, now).as_deref(),
                expected,
                "{image} {now}"
            );
        }
    }

    #[test]
    fn an_answer_is_for_whom_it_was_given() {
        let whose = |token: &str| {
            ServiceAccount::asked_by(&Account {
                of: Default::default(),
                annotations: BTreeMap::new(),
                token: token.into(),
            })
        };
        let mut cache = Cache::default();
        let hour = Duration::from_secs(3600);
        let answer = answer(CacheKeyType::Global, None);
        cache.put(("r/a", Some(whose("t"))), &answer, hour, at(0));
        assert!(cache.get("r/b", Some(&whose("t")), at(0)).is_some());
        assert!(cache.get("r/b", Some(&whose("u")), at(0)).is_none());
        assert!(cache.get("r/b", None, at(0)).is_none());
    }

    #[test]
    fn an_answer_that_is_not_to_be_kept_is_not() {
        let mut cache = Cache::default();
        let hour = Duration::from_secs(3600);
        cache.put(
            ("r/a", None),
            &answer(CacheKeyType::Image, Some(0)),
            hour,
            at(0),
        );
        let unsaid = answer(CacheKeyType::Global, None);
        cache.put(("r/a", None), &unsaid, Duration::ZERO, at(0));
        assert_eq!(whose(&cache, "r/a", 0), None);
        cache.put(("r/a", None), &unsaid, Duration::MAX, at(0));
        assert!(whose(&cache, "r/a", 1).is_some());
    }
}
