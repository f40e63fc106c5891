//! What is read back, whatever was written, cut off or broken.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::file::{self, EntryFile, Form};
use super::{Entries, Source, Writer};

type All = BTreeMap<String, String>;

fn form() -> Form<String, String> {
    Form {
        whole: |data| serde_json::from_slice::<Vec<(String, String)>>(data).ok(),
    }
}

fn read(path: &Path) -> All {
    file::load(path, &form(), |_, _| true).unwrap().entries
}

fn entries(all: &[(&str, &str)]) -> All {
    let owned = |(key, entry): &(&str, &str)| ((*key).to_owned(), (*entry).to_owned());
    all.iter().map(owned).collect()
}

/// What changes, shared with whoever writes it.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<All>>);

impl Source<String> for Held {
    type Entry = String;

    fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn entry(&self, key: &String) -> Option<String> {
        self.0.lock().unwrap().get(key).cloned()
    }
}

/// One life of the process.
struct Life {
    held: Held,
    entries: Entries<String>,
    writer: Writer<String, Held>,
}

impl Life {
    fn begin(path: &Path) -> Life {
        let entries = Entries::new(path.to_owned());
        let held = Held(Arc::new(Mutex::new(entries.load(&form(), |_, _| true))));
        Life {
            writer: Writer::new(entries.clone(), held.clone()),
            held,
            entries,
        }
    }

    fn set(&self, key: &str, entry: Option<&str>) {
        let mut held = self.held.0.lock().unwrap();
        match entry {
            Some(entry) => drop(held.insert(key.to_owned(), entry.to_owned())),
            None => drop(held.remove(key)),
        }
        self.entries.soon(key.to_owned());
    }

    async fn write(&mut self) {
        self.writer.write(Instant::now()).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_is_written_alone_and_all_of_them_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut life = Life::begin(&path);
    let long = "l".repeat(10_000);
    for key in ["a", "b", "c"] {
        life.set(key, Some(&long));
    }
    life.write().await;
    let before = fs::metadata(&path).unwrap().len();
    life.set("b", Some("short"));
    life.set("c", None);
    life.set("never there", None);
    life.write().await;
    let more = fs::metadata(&path).unwrap().len() - before;
    assert!(more < 200, "{more} bytes for two small changes");
    let after = entries(&[("a", &long), ("b", "short")]);
    assert_eq!(read(&path), after);
    // Another life goes on with the same file.
    let mut life = Life::begin(&path);
    assert_eq!(*life.held.0.lock().unwrap(), after);
    life.write().await;
    let length = fs::metadata(&path).unwrap().len();
    assert_eq!(length, before + more, "nothing changed");
    life.set("d", Some("e"));
    life.write().await;
    assert!(fs::metadata(&path).unwrap().len() < length + 100);
    assert_eq!(read(&path).len(), 3);
}

#[tokio::test]
async fn what_is_gone_is_off_the_disk_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut life = Life::begin(&path);
    life.set("a", Some("password"));
    life.set("b", Some("stays"));
    life.write().await;
    life.set("a", None);
    life.write().await;
    let holds = || fs::read_to_string(&path).unwrap().contains("password");
    assert!(holds(), "only a line more");
    let now = Instant::now();
    let soon = now + Duration::from_secs(50);
    life.writer.write(soon).await.unwrap();
    assert!(holds());
    life.writer.write(now + super::CLEAN_AFTER).await.unwrap();
    assert!(!holds());
    assert_eq!(read(&path), entries(&[("b", "stays")]));
}

#[tokio::test]
async fn a_file_of_many_changes_stays_small() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut life = Life::begin(&path);
    let long = "l".repeat(20_000);
    for round in 0..60 {
        life.set("a", Some(&format!("{round}{long}")));
        life.write().await;
    }
    assert!(fs::metadata(&path).unwrap().len() < 400_000);
    assert_eq!(read(&path), entries(&[("a", &format!("59{long}"))]));
}

#[tokio::test]
async fn a_file_that_was_taken_away_or_cannot_be_written_is_written_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let mut life = Life::begin(&path);
    life.set("a", Some("1"));
    life.write().await;
    fs::remove_file(&path).unwrap();
    life.set("b", Some("2"));
    assert!(life.writer.write(Instant::now()).await.is_err());
    life.write().await;
    assert_eq!(read(&path), entries(&[("a", "1"), ("b", "2")]));
}

#[test]
fn a_broken_line_costs_what_it_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    let all = entries(&[("a", "1"), ("b", "2"), ("c", "3")]);
    EntryFile::create(&path, all).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    for broken in [
        text.replace(r#""b""#, r#""b"#),
        text.replace(r#""entry":"2""#, r#""entry":{}"#),
        text.replace(r#""version":2,"key":"b""#, r#""version":3,"key":"b""#),
        text.replace(r#""b""#, "\0\0\0"),
    ] {
        fs::write(&path, broken).unwrap();
        let found = file::load(&path, &form(), |_, _| true).unwrap();
        assert_eq!(found.entries, entries(&[("a", "1"), ("c", "3")]));
        assert_eq!(found.broken, [2]);
        assert!(found.file.is_none(), "it is written whole next");
    }
}

#[test]
fn what_was_written_whole_is_read_and_nonsense_is_put_aside() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.json");
    polylet_kit::kept::save(&path, 1, &vec![("a", "1"), ("b", "2")]).unwrap();
    let wanted = |key: &String, _: &String| key == "b";
    let found = file::load(&path, &form(), wanted).unwrap();
    assert_eq!(found.entries, entries(&[("b", "2")]));
    assert!(found.file.is_none() && found.broken.is_empty());
    for nonsense in ["{", "\n", "{\"version\":1,\"data\":7}", "\0"] {
        fs::write(&path, nonsense).unwrap();
        assert!(Life::begin(&path).held.0.lock().unwrap().is_empty());
        assert!(!path.exists(), "{nonsense:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Killed, or without power, at any byte of what was not yet synced.
    #[test]
    fn a_crash_takes_no_more_than_was_not_synced(
        first in prop::collection::btree_map("[a-d]", "[a-z\n\"]{0,8}", 0..4),
        changes in prop::collection::vec(("[a-d]", prop::option::of("[a-z\n\"]{0,8}")), 0..8),
        cut in any::<prop::sample::Index>(),
        zeroed in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        let mut file = EntryFile::create(&path, first.clone()).unwrap();
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
        for (key, entry) in changes {
            match entry {
                Some(entry) => drop(state.insert(key, entry)),
                None => drop(state.remove(&key)),
            }
            states.insert(state.clone());
        }
        let found = file::load(&path, &form(), |_, _| true).unwrap();
        prop_assert!(states.contains(&found.entries), "{:?}", found.entries);
        // Where there was nothing before, nobody can tell a beginning from nonsense.
        prop_assert!(found.broken.is_empty() || synced == 0);
        // And it can be written on.
        let mut held = found.entries;
        let mut file = match found.file {
            Some(file) => file,
            None => EntryFile::create(&path, held.clone()).unwrap(),
        };
        file.append([("z".to_owned(), Some("last".to_owned()))]).unwrap();
        held.insert("z".to_owned(), "last".to_owned());
        prop_assert_eq!(read(&path), held);
    }
}
