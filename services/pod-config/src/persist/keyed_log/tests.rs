//! What is loaded after writes, crashes and corruption.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::log_file::{self, LogFile};
use super::{KeyedLog, LogWriter, RecordSource};

type All = BTreeMap<String, String>;

fn read(path: &Path) -> All {
    log_file::load(path, |_, _: &String| true).unwrap().records
}

fn records(all: &[(&str, &str)]) -> All {
    let owned = |(key, record): &(&str, &str)| ((*key).to_owned(), (*record).to_owned());
    all.iter().map(owned).collect()
}

/// Objects, shared with the writer.
#[derive(Clone, Default)]
struct Objects(Arc<Mutex<All>>);

impl RecordSource<String> for Objects {
    type Record = String;

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn record(&self, key: &String) -> Option<String> {
        self.0.lock().unwrap().get(key).cloned()
    }
}

/// One process instance.
struct Process {
    objects: Objects,
    log: KeyedLog<String>,
    writer: LogWriter<String, Objects>,
}

impl Process {
    fn start(path: &Path) -> Process {
        let log = KeyedLog::new(path.to_owned());
        let objects = Objects(Arc::new(Mutex::new(log.load(|_, _| true))));
        Process {
            writer: LogWriter::new(log.clone(), objects.clone()),
            objects,
            log,
        }
    }

    fn set(&self, key: &str, record: Option<&str>) {
        let mut objects = self.objects.0.lock().unwrap();
        match record {
            Some(record) => drop(objects.insert(key.to_owned(), record.to_owned())),
            None => drop(objects.remove(key)),
        }
        self.log.schedule(key.to_owned());
    }

    async fn write(&mut self) {
        self.writer.write(Instant::now()).await.unwrap();
    }
}

#[tokio::test]
async fn only_changes_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut process = Process::start(&path);
    let long = "l".repeat(10_000);
    for key in ["a", "b", "c"] {
        process.set(key, Some(&long));
    }
    process.write().await;
    let before = fs::metadata(&path).unwrap().len();
    process.set("b", Some("short"));
    process.set("c", None);
    process.set("never there", None);
    process.write().await;
    let more = fs::metadata(&path).unwrap().len() - before;
    assert!(more < 200, "{more} bytes for two small changes");
    let after = records(&[("a", &long), ("b", "short")]);
    assert_eq!(read(&path), after);
    // A new process appends to the same file.
    let mut process = Process::start(&path);
    assert_eq!(*process.objects.0.lock().unwrap(), after);
    process.write().await;
    let length = fs::metadata(&path).unwrap().len();
    assert_eq!(length, before + more, "nothing changed");
    process.set("d", Some("e"));
    process.write().await;
    assert!(fs::metadata(&path).unwrap().len() < length + 100);
    assert_eq!(read(&path).len(), 3);
}

#[tokio::test]
async fn deleted_records_are_compacted_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut process = Process::start(&path);
    process.set("a", Some("password"));
    process.set("b", Some("stays"));
    process.write().await;
    process.set("a", None);
    process.write().await;
    let holds = || fs::read_to_string(&path).unwrap().contains("password");
    assert!(holds(), "only appended");
    let now = Instant::now();
    let soon = now + Duration::from_secs(50);
    process.writer.write(soon).await.unwrap();
    assert!(holds());
    process
        .writer
        .write(now + super::COMPACT_AFTER)
        .await
        .unwrap();
    assert!(!holds());
    assert_eq!(read(&path), records(&[("b", "stays")]));
}

#[tokio::test]
async fn file_with_many_changes_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut process = Process::start(&path);
    let long = "l".repeat(20_000);
    for n in 0..60 {
        process.set("a", Some(&format!("{n}{long}")));
        process.write().await;
    }
    assert!(fs::metadata(&path).unwrap().len() < 400_000);
    assert_eq!(read(&path), records(&[("a", &format!("59{long}"))]));
}

#[tokio::test]
async fn deleted_file_is_written_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut process = Process::start(&path);
    process.set("a", Some("1"));
    process.write().await;
    fs::remove_file(&path).unwrap();
    process.set("b", Some("2"));
    assert!(process.writer.write(Instant::now()).await.is_err());
    process.write().await;
    assert_eq!(read(&path), records(&[("a", "1"), ("b", "2")]));
}

#[test]
fn corrupt_line_loses_only_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let all = records(&[("a", "1"), ("b", "2"), ("c", "3")]);
    LogFile::create(&path, all).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    for corrupt in [
        text.replace(r#""b""#, r#""b"#),
        text.replace(r#""record":"2""#, r#""record":{}"#),
        text.replace(r#""version":3,"key":"b""#, r#""version":9,"key":"b""#),
        text.replace(r#""b""#, "\0\0\0"),
    ] {
        fs::write(&path, corrupt).unwrap();
        let loaded = log_file::load(&path, |_: &String, _: &String| true).unwrap();
        assert_eq!(loaded.records, records(&[("a", "1"), ("c", "3")]));
        assert_eq!(loaded.corrupt, [2]);
        assert!(loaded.file.is_none(), "written as a whole next");
    }
}

#[test]
fn filtered_records_are_dropped_and_corrupt_files_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    LogFile::create(&path, records(&[("a", "1"), ("b", "2")])).unwrap();
    let filter = |key: &String, _: &String| key == "b";
    let loaded = log_file::load(&path, filter).unwrap();
    assert_eq!(loaded.records, records(&[("b", "2")]));
    assert!(loaded.file.is_none() && loaded.corrupt.is_empty());
    for corrupt in ["{", "\n", "{\"version\":1,\"data\":7}", "\0"] {
        fs::write(&path, corrupt).unwrap();
        assert!(Process::start(&path).objects.0.lock().unwrap().is_empty());
        assert!(!path.exists(), "{corrupt:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// A crash or power loss at any byte that was not synced.
    #[test]
    fn crash_loses_only_unsynced_changes(
        first in prop::collection::btree_map("[a-d]", "[a-z\n\"]{0,8}", 0..4),
        changes in prop::collection::vec(("[a-d]", prop::option::of("[a-z\n\"]{0,8}")), 0..8),
        cut in any::<prop::sample::Index>(),
        zeroed in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        let mut file = LogFile::create(&path, first.clone()).unwrap();
        let synced = fs::metadata(&path).unwrap().len() as usize;
        file.append(changes.clone()).unwrap();
        let mut text = fs::read(&path).unwrap();
        let end = synced + cut.index(text.len() - synced + 1);
        if zeroed {
            // The length was on disk before the content.
            text[end..].fill(0);
        } else {
            text.truncate(end);
        }
        fs::write(&path, &text).unwrap();
        let mut states = BTreeSet::from([first.clone()]);
        let mut state = first;
        for (key, record) in changes {
            match record {
                Some(record) => drop(state.insert(key, record)),
                None => drop(state.remove(&key)),
            }
            states.insert(state.clone());
        }
        let loaded = log_file::load(&path, |_: &String, _: &String| true).unwrap();
        prop_assert!(states.contains(&loaded.records), "{:?}", loaded.records);
        // In an empty file a truncated first line cannot be told from corruption.
        prop_assert!(loaded.corrupt.is_empty() || synced == 0);
        // Further records can be appended.
        let mut objects = loaded.records;
        let mut file = match loaded.file {
            Some(file) => file,
            None => LogFile::create(&path, objects.clone()).unwrap(),
        };
        file.append([("z".to_owned(), Some("last".to_owned()))]).unwrap();
        objects.insert("z".to_owned(), "last".to_owned());
        prop_assert_eq!(read(&path), objects);
    }
}
