//! Watching of the manifest directory.
//!
//! A file is read when its writer has closed it, when it was moved into place, or when it has been
//! quiet for a while, but as far as possible not while it is being written. A file that is deleted or
//! moved away is removed at once, as for a kubelet, also if another takes its place a moment later.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use polylet_kit::CancellationToken;
use polylet_schedule::{Backoff, DueQueue};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Span;

use super::events::{DirectoryEvent, DirectoryEvents};
use super::scan::{self, QUIET_PERIOD, ReadRequest, ReadTarget};
use crate::config::DirectoryConfig;
use crate::input::{DirListing, FileState, Input, ReadResult, ScanResult};

/// When the path of a removed file is read, in case of a file there whose event came first: that of
/// two files that were exchanged.
const RECHECK_DELAY: Duration = Duration::from_millis(10);
/// After this time the directory counts as unresponsive.
const SCAN_TIMEOUT: Duration = Duration::from_secs(10);
/// First delay before a lost inotify watch is added again.
const WATCH_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Watches the manifest directory.
pub struct DirectoryWatcher {
    config: DirectoryConfig,
    /// Fingerprints of the files read by this process.
    known: BTreeMap<String, String>,
    /// Fingerprints of the restored files, which are no changes.
    restored: BTreeMap<String, String>,
    /// Fingerprints of files that were read while possibly incomplete.
    unsettled: BTreeMap<String, String>,
    /// Files that were deleted or moved away, to be reported before any is read.
    removed: BTreeSet<String>,
    /// Files to be read.
    due: DueQueue<String, Instant>,
    /// When the changes of these files were first observed.
    observed_at: BTreeMap<String, Timestamp>,
    events: Option<DirectoryEvents>,
    retry: Backoff,
    /// Where pods of a kubelet are to be found, until the directory was read.
    pod_logs: Option<PathBuf>,
    /// Whether an earlier process has read manifests.
    had_manifests: bool,
    missing_since: Option<Instant>,
}

impl DirectoryWatcher {
    /// A watcher; `restored` has the fingerprints of the persisted files.
    pub fn new(config: DirectoryConfig, restored: BTreeMap<String, String>) -> DirectoryWatcher {
        DirectoryWatcher {
            retry: Backoff::new(WATCH_RETRY_DELAY, config.interval),
            pod_logs: Some(config.pod_logs.clone()),
            config,
            known: BTreeMap::new(),
            had_manifests: !restored.is_empty(),
            missing_since: None,
            restored,
            unsettled: BTreeMap::new(),
            removed: BTreeSet::new(),
            due: DueQueue::new(),
            observed_at: BTreeMap::new(),
            events: None,
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
            // The watch is added before the scan, so that no change is missed in between.
            let next_scan = Instant::now() + self.ensure_watch();
            let request = ReadRequest::All {
                known: self.known.clone(),
                restored: std::mem::take(&mut self.restored),
                pod_logs: self.pod_logs.clone(),
            };
            if !self.scan(request, to).await {
                return;
            }
            while !self.wait(next_scan).await {
                let targets = self.due_targets();
                let any = !targets.is_empty() || !self.removed.is_empty();
                if any && !self.scan(ReadRequest::Some(targets), to).await {
                    return;
                }
            }
        }
    }

    fn due_targets(&mut self) -> Vec<ReadTarget> {
        let now = Instant::now();
        let mut targets = Vec::new();
        while let Some(origin) = self.due.pop_due(now) {
            let observed_at = self.observed_at.remove(&origin);
            let unsettled = self.unsettled.remove(&origin);
            targets.push(ReadTarget {
                expected: unsettled.or_else(|| self.known.get(&origin).cloned()),
                observed_at: observed_at.unwrap_or_else(Timestamp::now),
                origin,
            });
        }
        targets
    }

    /// Adds the inotify watch if there is none; returns the time until the next complete scan.
    fn ensure_watch(&mut self) -> Duration {
        if self.events.is_none() {
            match DirectoryEvents::watch(&self.config.path) {
                Ok(events) => {
                    self.events = Some(events);
                    self.retry.reset();
                }
                Err(error) => {
                    let path = self.config.path.display();
                    let retry_in = self.retry.next_delay();
                    tracing::debug!(%path, %error, ?retry_in, "inotify unavailable; polling manifests");
                    return retry_in;
                }
            }
        }
        self.config.interval
    }

    /// Waits for events or due files; returns whether a complete scan is due.
    async fn wait(&mut self, next_scan: Instant) -> bool {
        let next_due = self.due.next_due();
        let until = next_due.map_or(next_scan, |at| at.min(next_scan));
        let events = async {
            match &mut self.events {
                Some(events) => events.next().await,
                None => std::future::pending().await,
            }
        };
        let events = tokio::select! {
            biased;
            events = events => events,
            () = sleep_until(until) => return next_scan <= until,
        };
        self.handle_events(events)
    }

    /// Schedules the changed files; returns whether a complete scan is due. The last event of a file
    /// decides when it is read.
    fn handle_events(&mut self, events: Vec<DirectoryEvent>) -> bool {
        let (now, observed_at) = (Instant::now(), Timestamp::now());
        let mut rescan = false;
        for event in events {
            let (path, at, reschedules) = match event {
                DirectoryEvent::RescanRequired => {
                    rescan = true;
                    continue;
                }
                DirectoryEvent::WatchLost => {
                    self.events = None;
                    rescan = true;
                    continue;
                }
                DirectoryEvent::Written(path) => (path, now, true),
                DirectoryEvent::AttributesChanged(path) => (path, now, false),
                DirectoryEvent::Removed(path) => {
                    self.remove(&path);
                    (path, now + RECHECK_DELAY, true)
                }
                DirectoryEvent::Writing(path) => (path, now + QUIET_PERIOD, true),
            };
            // The scan reports names that are not UTF-8.
            let Some(origin) = path.to_str().map(str::to_owned) else {
                rescan = true;
                continue;
            };
            if reschedules || self.due.due(&origin).is_none() {
                self.schedule(origin, at, observed_at);
            }
        }
        rescan
    }

    /// Has a removed file reported; one that is there again is another one.
    fn remove(&mut self, path: &Path) {
        let Some(origin) = path.to_str() else {
            return;
        };
        self.known.remove(origin);
        self.unsettled.remove(origin);
        self.removed.insert(origin.to_owned());
    }

    /// Schedules the reading of a file. An earlier observation of the same change is retained.
    fn schedule(&mut self, origin: String, at: Instant, observed_at: Timestamp) {
        self.observed_at
            .entry(origin.clone())
            .or_insert(observed_at);
        self.due.set(origin, at);
    }

    /// Scans, records the fingerprints, and sends the result; false when the receiver is closed.
    async fn scan(&mut self, request: ReadRequest, to: &mpsc::Sender<Input>) -> bool {
        let root = self.config.path.clone();
        let removed = self.removed_files();
        let mut scanning = tokio::task::spawn_blocking(move || scan::scan(&root, request));
        let scanned = match timeout(SCAN_TIMEOUT, &mut scanning).await {
            Ok(scanned) => scanned,
            Err(_) => {
                let seconds = SCAN_TIMEOUT.as_secs();
                let failed = unreadable(format!("does not respond for {seconds} s"));
                if to.send(Input::Directory(failed)).await.is_err() {
                    return false;
                }
                // Another scan would hang as well.
                scanning.await
            }
        };
        let mut scan = scanned.unwrap_or_else(|error| unreadable(format!("scan failed: {error}")));
        scan.files.splice(..0, removed);
        self.confirm_missing(&mut scan.listing);
        self.record_scan(&scan);
        to.send(Input::Directory(scan)).await.is_ok()
    }

    /// The files that were removed since the last scan.
    fn removed_files(&mut self) -> Vec<FileState> {
        let observed_at = Timestamp::now();
        let removed = std::mem::take(&mut self.removed).into_iter();
        let gone = |origin| FileState {
            origin,
            observed_at,
            span: Span::none(),
            result: ReadResult::Gone,
        };
        removed.map(gone).collect()
    }

    /// A directory with manifests that disappears is unreadable for one interval, and missing only
    /// then: it may be about to be replaced by another one, and every pod would be stopped. The
    /// kubelet, which checks at this interval, hardly ever sees the gap.
    fn confirm_missing(&mut self, listing: &mut DirListing) {
        if !matches!(listing, DirListing::Missing) {
            self.missing_since = None;
            return;
        }
        let since = *self.missing_since.get_or_insert_with(Instant::now);
        let has_manifests =
            self.had_manifests || !self.known.is_empty() || !self.unsettled.is_empty();
        if has_manifests && since.elapsed() < self.config.interval {
            *listing = DirListing::Unreadable("does not exist".to_owned());
        } else {
            self.had_manifests = false;
        }
    }

    fn record_scan(&mut self, scan: &ScanResult) {
        match &scan.listing {
            DirListing::Missing => self.known.clear(),
            DirListing::Complete(origins) => {
                self.pod_logs = None;
                self.known.retain(|origin, _| origins.contains(origin));
            }
            DirListing::Partial | DirListing::Unreadable(_) => {}
        }
        for file in &scan.files {
            let origin = file.origin.clone();
            match &file.result {
                ReadResult::Read {
                    fingerprint,
                    settled: true,
                    ..
                }
                | ReadResult::Unreadable {
                    fingerprint: Some(fingerprint),
                    ..
                } => {
                    self.known.insert(origin, fingerprint.clone());
                }
                ReadResult::Read { fingerprint, .. } => {
                    self.known.remove(&origin);
                    self.unsettled.insert(origin.clone(), fingerprint.clone());
                    if self.due.due(&origin).is_none() {
                        self.schedule(origin, Instant::now() + QUIET_PERIOD, file.observed_at);
                    }
                }
                ReadResult::Unreadable { .. } | ReadResult::Gone => {
                    self.known.remove(&origin);
                }
            }
        }
    }
}

fn unreadable(message: String) -> ScanResult {
    ScanResult {
        listing: DirListing::Unreadable(message),
        files: Vec::new(),
        pod_logs: Arc::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watcher() -> DirectoryWatcher {
        let config = DirectoryConfig {
            path: PathBuf::from("/m"),
            interval: QUIET_PERIOD,
            pod_logs: PathBuf::from("/l"),
        };
        DirectoryWatcher::new(config, BTreeMap::new())
    }

    #[test]
    fn file_that_is_deleted_or_moved_away_is_removed_also_if_it_is_there_again() {
        use DirectoryEvent::{AttributesChanged, Removed, RescanRequired, WatchLost};
        use DirectoryEvent::{Writing, Written};
        let a = || PathBuf::from("/m/a");
        for (case, events, is_removed) in [
            ("deleted", vec![Removed(a())], true),
            (
                "deleted and written again",
                vec![Removed(a()), Writing(a()), Written(a())],
                true,
            ),
            (
                "moved away and back",
                vec![Removed(a()), Written(a())],
                true,
            ),
            (
                "deleted before events were lost",
                vec![Removed(a()), RescanRequired],
                true,
            ),
            ("replaced by another file", vec![Written(a())], false),
            ("written in place", vec![Writing(a()), Written(a())], false),
            ("another mode", vec![AttributesChanged(a())], false),
            ("events were lost", vec![RescanRequired], false),
            ("watch was lost", vec![WatchLost], false),
            (
                "another file is deleted",
                vec![Removed(PathBuf::from("/m/b"))],
                false,
            ),
        ] {
            let mut watcher = watcher();
            watcher.known.insert("/m/a".to_owned(), "1".to_owned());
            watcher.handle_events(events);
            let removed = watcher.removed_files();
            let gone =
                |file: &FileState| file.origin == "/m/a" && matches!(file.result, ReadResult::Gone);
            assert_eq!(removed.iter().any(gone), is_removed, "{case}");
            assert_eq!(watcher.known.is_empty(), is_removed, "{case}");
            assert!(watcher.removed_files().is_empty(), "{case}: reported once");
        }
    }

    #[test]
    fn last_event_of_a_file_decides_when_it_is_read() {
        let mut watcher = watcher();
        let path = || PathBuf::from("/m/a");
        let due = |watcher: &DirectoryWatcher| watcher.due.due(&"/m/a".to_owned());
        assert!(!watcher.handle_events(vec![DirectoryEvent::Writing(path())]));
        let (later, observed_at) = (due(&watcher), watcher.observed_at["/m/a"]);
        assert!(!watcher.handle_events(vec![DirectoryEvent::AttributesChanged(path())]));
        assert_eq!(
            due(&watcher),
            later,
            "a change of mode does not end the wait for the writer"
        );
        assert!(!watcher.handle_events(vec![
            DirectoryEvent::Removed(path()),
            DirectoryEvent::Written(path())
        ]));
        assert!(due(&watcher) < later);
        assert_eq!(
            watcher.observed_at["/m/a"], observed_at,
            "the first observation counts"
        );
        assert!(watcher.handle_events(vec![DirectoryEvent::WatchLost]));
    }
}
