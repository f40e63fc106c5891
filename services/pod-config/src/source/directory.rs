//! The task that watches the manifest directory.
//!
//! A file is read when its writer has closed it, when it was moved into place, or when it has been
//! quiet for a while; never in the middle of writing, as far as can be known. A file that vanished
//! is looked for again a moment later, since editors replace files by way of their absence.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::events::{Event, Events};
use super::look::{self, Ask, QUIET, Wanted};
pub use super::look::{Listing, Looked, Outcome, Seen};
use crate::config::DirectorySettings;
use crate::run::Input;

/// How long an editor may leave a file away while it replaces it.
const ABSENCE: Duration = Duration::from_millis(10);
/// After this the directory counts as not answering.
const PATIENCE: Duration = Duration::from_secs(10);
/// First pause before a lost watch is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The source.
pub struct Directory {
    settings: DirectorySettings,
    /// Stamps of what was read in this life.
    known: BTreeMap<String, String>,
    /// Stamps from the kept set: reading these again is no news.
    expected: BTreeMap<String, String>,
    /// Stamps of what was read while its writer may not have been done.
    half: BTreeMap<String, String>,
    /// To be looked at, and since when.
    due: BTreeMap<String, (Instant, Timestamp)>,
    events: Option<Events>,
    retry: Duration,
    /// The directory held manifests in an earlier life.
    held_before: bool,
    missing_since: Option<Instant>,
}

impl Directory {
    /// A source that has read nothing yet.
    pub fn new(settings: DirectorySettings, expected: BTreeMap<String, String>) -> Directory {
        Directory {
            settings,
            known: BTreeMap::new(),
            held_before: !expected.is_empty(),
            missing_since: None,
            expected,
            half: BTreeMap::new(),
            due: BTreeMap::new(),
            events: None,
            retry: RETRY,
        }
    }

    /// Watches until the drain.
    pub async fn run(mut self, to: mpsc::Sender<Input>, drain: CancellationToken) {
        tokio::select! {
            () = drain.cancelled() => {}
            () = self.watch(&to) => {}
        }
    }

    async fn watch(&mut self, to: &mpsc::Sender<Input>) {
        loop {
            // The watch comes before the look, so that nothing falls between them.
            let next_look = Instant::now() + self.rewatch();
            let ask = Ask::All {
                known: self.known.clone(),
                expected: std::mem::take(&mut self.expected),
            };
            if !self.look(ask, to).await {
                return;
            }
            while !self.wait(next_look).await {
                let now = Instant::now();
                let ripe: Vec<String> = self
                    .due
                    .iter()
                    .filter(|(_, (at, _))| *at <= now)
                    .map(|(o, _)| o.clone())
                    .collect();
                let wanted: Vec<Wanted> = ripe
                    .into_iter()
                    .filter_map(|origin| {
                        let (_, observed_at) = self.due.remove(&origin)?;
                        let expected = self
                            .half
                            .remove(&origin)
                            .or_else(|| self.known.get(&origin).cloned());
                        Some(Wanted {
                            origin,
                            observed_at,
                            expected,
                        })
                    })
                    .collect();
                if !wanted.is_empty() && !self.look(Ask::Some(wanted), to).await {
                    return;
                }
            }
        }
    }

    /// Makes sure there is a watch; tells how long it may take until the next full look.
    fn rewatch(&mut self) -> Duration {
        if self.events.is_none() {
            match Events::watch(&self.settings.path) {
                Ok(events) => {
                    self.events = Some(events);
                    self.retry = RETRY;
                }
                Err(error) => {
                    tracing::debug!(path = %self.settings.path.display(), "no inotify watch: {error}");
                    let pause = self.retry;
                    self.retry = (pause * 2).min(self.settings.every);
                    return pause.min(self.settings.every);
                }
            }
        }
        self.settings.every
    }

    /// Waits for something to do; true when that is a look at everything.
    async fn wait(&mut self, next_look: Instant) -> bool {
        let ripe = self.due.values().map(|(at, _)| *at).min();
        let until = ripe.map_or(next_look, |at| at.min(next_look));
        let told = async {
            match &mut self.events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        let told = tokio::select! {
            biased;
            told = told => told,
            () = sleep_until(until) => return next_look <= until,
        };
        self.note(told)
    }

    /// The last word about a file counts.
    fn note(&mut self, told: Vec<Event>) -> bool {
        let (now, seen) = (Instant::now(), Timestamp::now());
        let mut everything = false;
        for event in told {
            let (path, at, urgent) = match event {
                Event::Anything => {
                    everything = true;
                    continue;
                }
                Event::Lost => {
                    self.events = None;
                    everything = true;
                    continue;
                }
                Event::Done(path) => (path, now, true),
                Event::Touched(path) => (path, now, false),
                Event::Vanished(path) => (path, now + ABSENCE, true),
                Event::Writing(path) => (path, now + QUIET, true),
            };
            // A name that is no text is found by the next full look.
            let Some(origin) = path.to_str().map(str::to_owned) else {
                everything = true;
                continue;
            };
            let first_seen = self.due.get(&origin).map_or(seen, |(_, first)| *first);
            if urgent || !self.due.contains_key(&origin) {
                self.due.insert(origin, (at, first_seen));
            }
        }
        everything
    }

    /// Looks, remembers, passes on; false when nobody listens any more.
    async fn look(&mut self, ask: Ask, to: &mpsc::Sender<Input>) -> bool {
        let root = self.settings.path.clone();
        let mut looking = tokio::task::spawn_blocking(move || look::look(&root, ask));
        let looked = match timeout(PATIENCE, &mut looking).await {
            Ok(looked) => looked,
            Err(_) => {
                let listing =
                    Listing::Unreadable(format!("does not answer for {} s", PATIENCE.as_secs()));
                if to
                    .send(Input::Directory(Looked {
                        listing,
                        files: Vec::new(),
                    }))
                    .await
                    .is_err()
                {
                    return false;
                }
                // One hung look at a time: another would hang beside it.
                looking.await
            }
        };
        let mut looked = looked.unwrap_or_else(|error| Looked {
            listing: Listing::Unreadable(format!("looking at it failed: {error}")),
            files: Vec::new(),
        });
        self.believe(&mut looked.listing);
        self.remember(&looked);
        to.send(Input::Directory(looked)).await.is_ok()
    }

    /// A directory that held manifests is not believed to be gone at once: it may be on its way to be
    /// replaced by another, and every pod of it would be stopped. Upstream, which looks as seldom as
    /// this waits, hardly ever meets the gap.
    fn believe(&mut self, listing: &mut Listing) {
        if !matches!(listing, Listing::Missing) {
            self.missing_since = None;
            return;
        }
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        let held = self.held_before || !self.known.is_empty() || !self.half.is_empty();
        if held && since.elapsed() < self.settings.every {
            *listing = Listing::Unreadable("is not there".to_owned());
        } else {
            self.held_before = false;
        }
    }

    fn remember(&mut self, looked: &Looked) {
        match &looked.listing {
            Listing::Missing => self.known.clear(),
            Listing::Whole(there) => self.known.retain(|origin, _| there.contains(origin)),
            Listing::Partial | Listing::Unreadable(_) => {}
        }
        for file in &looked.files {
            match &file.outcome {
                Outcome::Read {
                    stamp,
                    settled: true,
                    ..
                }
                | Outcome::Unreadable {
                    stamp: Some(stamp), ..
                } => {
                    self.known.insert(file.origin.clone(), stamp.clone());
                }
                Outcome::Read { stamp, .. } => {
                    self.known.remove(&file.origin);
                    self.half.insert(file.origin.clone(), stamp.clone());
                    self.due
                        .entry(file.origin.clone())
                        .or_insert((Instant::now() + QUIET, file.observed_at));
                }
                Outcome::Unreadable { .. } | Outcome::Gone => {
                    self.known.remove(&file.origin);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_last_word_about_a_file_counts() {
        let settings = DirectorySettings {
            path: PathBuf::from("/m"),
            every: QUIET,
        };
        let mut source = Directory::new(settings, BTreeMap::new());
        let path = || PathBuf::from("/m/a");
        assert!(!source.note(vec![Event::Writing(path())]));
        let later = source.due["/m/a"];
        assert!(!source.note(vec![Event::Touched(path())]));
        assert_eq!(
            source.due["/m/a"], later,
            "a change of mode does not end the wait for the writer"
        );
        assert!(!source.note(vec![Event::Vanished(path()), Event::Done(path())]));
        assert!(source.due["/m/a"].0 < later.0);
        assert_eq!(source.due["/m/a"].1, later.1, "the first sight stays");
        assert!(source.note(vec![Event::Lost]));
    }
}
