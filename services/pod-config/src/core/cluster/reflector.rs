//! In which order lists and watches are asked for, so that what is held here becomes what the
//! cluster holds and stays it.
//!
//! A list is always asked without a resource version: the server then answers with what is true
//! now, and never with an older state than was told before. A watch goes on from the last version
//! that was heard, over lost connections too; only when the server does not know that version any
//! more (410) is everything listed again.

use std::time::Duration;

use polylet_api::Refusal;

/// A watch that the server fails to begin so often in a row, while it does answer, is no use: the
/// version that it would go on from may be one that the server has never had (its data was restored
/// from an older copy).
const MOST_FAILURES: u32 = 5;

/// The next request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The one object by its name: the quickest answer, straight from the store.
    Get,
    /// All of them.
    List,
    /// The changes since a version.
    Watch {
        /// The version.
        from: String,
    },
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To `Get`: the object's version, or that there is none.
    Got(Option<String>),
    /// To `List`: the list's version.
    Listed(String),
    /// During `Watch`: a change or a bookmark of this version.
    Heard(String),
    /// The watch has come to its end, as they all do.
    Ended,
    /// It failed.
    Failed(Refusal),
}

/// When the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once.
    Now,
    /// After a pause, at least as long as the server asked for.
    Later(Option<Duration>),
}

/// Where following stands.
#[derive(Clone, Debug)]
pub struct Reflector {
    /// It follows one object, which can be got by its name.
    single: bool,
    version: Option<String>,
    /// Whether anything at all was ever answered.
    begun: bool,
    /// The present watch has told something.
    fruitful: bool,
    failures: u32,
}

impl Reflector {
    /// Nothing is known yet.
    pub fn new(single: bool) -> Reflector {
        Reflector {
            single,
            version: None,
            begun: false,
            fruitful: false,
            failures: 0,
        }
    }

    /// The next request.
    pub fn ask(&self) -> Ask {
        match &self.version {
            Some(version) => Ask::Watch {
                from: version.clone(),
            },
            None if self.single && !self.begun => Ask::Get,
            None => Ask::List,
        }
    }

    /// Takes in what came of it.
    pub fn learn(&mut self, answer: Answer) -> Next {
        match answer {
            Answer::Got(version) => {
                self.begun = true;
                self.know(version)
            }
            Answer::Listed(version) => {
                self.begun = true;
                self.know(Some(version))
            }
            Answer::Heard(version) => {
                self.fruitful = true;
                self.failures = 0;
                if !version.is_empty() {
                    self.version = Some(version);
                }
                Next::Now
            }
            // A server that ends every watch at once must not be asked without a pause.
            Answer::Ended if std::mem::take(&mut self.fruitful) => Next::Now,
            Answer::Ended => Next::Later(None),
            Answer::Failed(refusal) => self.fail(refusal),
        }
    }

    fn know(&mut self, version: Option<String>) -> Next {
        self.version = version.filter(|version| !version.is_empty());
        self.fruitful = false;
        Next::Now
    }

    fn fail(&mut self, refusal: Refusal) -> Next {
        let fruitful = std::mem::take(&mut self.fruitful);
        match refusal {
            Refusal::Gone => {
                // The first time at once. A list whose version is too old by the time it is watched
                // from would otherwise be asked for in a circle.
                let first = self.failures == 0 || fruitful;
                self.failures += 1;
                self.version = None;
                self.begun = true;
                return if first { Next::Now } else { Next::Later(None) };
            }
            Refusal::Broken | Refusal::Invalid | Refusal::NotFound => {
                self.failures += 1;
                if self.failures >= MOST_FAILURES {
                    self.failures = 0;
                    self.version = None;
                    self.begun = true;
                }
            }
            _ => {}
        }
        match refusal {
            Refusal::Busy(asked) => Next::Later(asked),
            _ => Next::Later(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(number: u32) -> String {
        number.to_string()
    }

    fn watch(from: u32) -> Ask {
        Ask::Watch {
            from: version(from),
        }
    }

    #[test]
    fn a_list_then_watches_that_go_on_from_what_was_heard() {
        let mut all = Reflector::new(false);
        assert_eq!(all.ask(), Ask::List);
        assert_eq!(all.learn(Answer::Listed(version(5))), Next::Now);
        assert_eq!(all.ask(), watch(5));
        all.learn(Answer::Heard(version(7)));
        assert_eq!(all.learn(Answer::Ended), Next::Now);
        assert_eq!(all.ask(), watch(7));
        assert_eq!(all.learn(Answer::Ended), Next::Later(None), "told nothing");
        let lost = Answer::Failed(Refusal::Unreachable);
        assert_eq!(all.learn(lost), Next::Later(None));
        assert_eq!(all.ask(), watch(7), "a lost connection forgets nothing");
        let busy = Answer::Failed(Refusal::Busy(Some(Duration::from_secs(3))));
        assert_eq!(all.learn(busy), Next::Later(Some(Duration::from_secs(3))));
        assert_eq!(all.learn(Answer::Failed(Refusal::Gone)), Next::Now);
        assert_eq!(all.ask(), Ask::List);
        all.learn(Answer::Listed(version(9)));
        let again = all.learn(Answer::Failed(Refusal::Gone));
        assert_eq!(again, Next::Later(None), "no circle without a pause");
    }

    #[test]
    fn one_object_is_got_first() {
        let mut one = Reflector::new(true);
        assert_eq!(one.ask(), Ask::Get);
        one.learn(Answer::Failed(Refusal::Forbidden));
        assert_eq!(one.ask(), Ask::Get);
        let mut absent = one.clone();
        one.learn(Answer::Got(Some(version(3))));
        assert_eq!(one.ask(), watch(3));
        one.learn(Answer::Failed(Refusal::Gone));
        assert_eq!(one.ask(), Ask::List);
        absent.learn(Answer::Got(None));
        assert_eq!(absent.ask(), Ask::List, "for a version to watch from");
    }

    #[test]
    fn a_version_that_the_server_never_had_is_given_up() {
        let mut all = Reflector::new(false);
        all.learn(Answer::Listed(version(1000)));
        for _ in 0..MOST_FAILURES {
            assert_eq!(all.ask(), watch(1000));
            all.learn(Answer::Failed(Refusal::Broken));
        }
        assert_eq!(all.ask(), Ask::List);
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            Just(Answer::Ended),
            (0u32..9).prop_map(|v| Answer::Heard(version(v))),
            prop_oneof![
                Just(Refusal::Gone),
                Just(Refusal::Broken),
                Just(Refusal::Forbidden),
                Just(Refusal::Unreachable),
                Just(Refusal::Busy(None)),
            ]
            .prop_map(Answer::Failed),
        ]
    }

    proptest! {
        #[test]
        fn no_storm_and_always_a_way_back(
            single in any::<bool>(),
            answers in prop::collection::vec((any::<bool>(), answer()), 0..60),
        ) {
            let mut reflector = Reflector::new(single);
            let mut barren = 0;
            for (good, other) in answers {
                let ask = reflector.ask();
                let answer = match (&ask, good) {
                    (Ask::Get, true) => Answer::Got(Some(version(1))),
                    (Ask::List, true) => Answer::Listed(version(2)),
                    (Ask::Watch { .. }, true) => Answer::Heard(version(3)),
                    (Ask::Get | Ask::List, false) => match other {
                        Answer::Failed(_) => other,
                        _ => Answer::Failed(Refusal::Unreachable),
                    },
                    (Ask::Watch { .. }, false) => other,
                };
                let fruit = matches!(answer, Answer::Heard(_) | Answer::Got(_) | Answer::Listed(_));
                let next = reflector.learn(answer);
                barren = if fruit || next != Next::Now { 0 } else { barren + 1 };
                // The end of a good watch, and one 410, are followed up at once.
                prop_assert!(barren <= 2, "asked {barren} times without a pause or an answer");
            }
            for _ in 0..2 {
                let answer = match reflector.ask() {
                    Ask::Get => Answer::Got(Some(version(8))),
                    Ask::List => Answer::Listed(version(8)),
                    Ask::Watch { from } => Answer::Heard(from),
                };
                reflector.learn(answer);
            }
            let watching = matches!(reflector.ask(), Ask::Watch { .. });
            prop_assert!(watching, "two good answers lead to a watch");
        }
    }
}
