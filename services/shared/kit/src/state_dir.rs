//! A directory with one state file per key, for example one per pod: a change of one costs one
//! small file, and a corrupt one costs no other.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state_file::{self, StateFile, StateFileError};

/// What the name of each file ends with.
const SUFFIX: &str = ".json";

/// `<key>.json` for each key, each a [`StateFile`] of `T`.
#[derive(Debug)]
pub struct StateDir<T> {
    path: PathBuf,
    version: u32,
    synced: bool,
    data: PhantomData<fn() -> T>,
}

impl<T> Clone for StateDir<T> {
    fn clone(&self) -> Self {
        StateDir {
            path: self.path.clone(),
            ..*self
        }
    }
}

impl<T> StateDir<T> {
    /// A handle; the directory is made by [`StateDir::open`].
    pub fn new(path: impl Into<PathBuf>, version: u32) -> Self {
        StateDir {
            path: path.into(),
            version,
            synced: true,
            data: PhantomData,
        }
    }

    /// Does not wait for the disk: see [`StateFile::without_sync`].
    pub fn without_sync(mut self) -> Self {
        self.synced = false;
        self
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes a key, if it is there. Not synced: a crash of the node may bring it back.
    pub fn remove(&self, key: &str) -> Result<(), StateFileError> {
        self.file(key)?.remove()
    }

    fn file(&self, key: &str) -> Result<StateFile<T>, StateFileError> {
        // A hidden file, or a path out of the directory.
        if key.is_empty() || key.starts_with('.') || key.contains(['/', '\0']) {
            return Err(StateFileError::Key {
                path: self.path().to_owned(),
                key: key.to_owned(),
            });
        }
        let file = StateFile::new(self.path().join(format!("{key}{SUFFIX}")), self.version);
        Ok(if self.synced {
            file
        } else {
            file.without_sync()
        })
    }
}

impl<T: DeserializeOwned> StateDir<T> {
    /// Makes the directory if need be and restores all entries, each as [`StateFile::restore`] does.
    /// Temporary files that a crash left are removed. Blocks.
    ///
    /// # Errors
    /// The directory or an entry cannot be read, after several attempts, or a newer build wrote one.
    pub fn open(&self, effect: &str) -> Result<BTreeMap<String, T>, StateFileError> {
        let mut entries = BTreeMap::new();
        for key in state_file::with_retry(|| self.keys())? {
            if let Some(entry) = self.file(&key)?.restore(effect)? {
                entries.insert(key, entry);
            }
        }
        Ok(entries)
    }

    /// The keys of all entries, without what a crash left.
    fn keys(&self) -> Result<Vec<String>, StateFileError> {
        let failed = |source| StateFileError::Directory {
            path: self.path().to_owned(),
            source,
        };
        let mut builder = DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(self.path());
        made.map_err(failed)?;
        let mut keys = Vec::new();
        for found in fs::read_dir(self.path()).map_err(failed)? {
            let name = found.map_err(failed)?.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(state_file::TEMPORARY) {
                state_file::remove(&self.path().join(name))?;
            }
            let Some(key) = name.strip_suffix(SUFFIX) else {
                continue;
            };
            if self.file(key).is_ok() {
                keys.push(key.to_owned());
            }
        }
        Ok(keys)
    }
}

impl<T: Serialize> StateDir<T> {
    /// Saves the entry of a key. Blocks.
    pub fn put(&self, key: &str, entry: &T) -> Result<(), StateFileError> {
        self.file(key)?.save(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_survive_and_corrupt_ones_are_set_aside() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/pods");
        for dir in [
            StateDir::<Vec<u32>>::new(&path, 1),
            StateDir::new(&path, 1).without_sync(),
        ] {
            assert!(dir.open("").unwrap().is_empty());
            dir.put("a", &vec![1]).unwrap();
            dir.put("a", &vec![2]).unwrap();
            dir.put("b", &vec![3]).unwrap();
            dir.put("c.json", &vec![4]).unwrap();
            dir.remove("b").unwrap();
            dir.remove("b").unwrap();
            fs::write(path.join("d.json"), "{").unwrap();
            fs::write(path.join("e.json.new"), "{").unwrap();
            fs::write(path.join("notes.txt"), "").unwrap();
            let entries = dir.open("starting without it").unwrap();
            let expected = [("a", vec![2]), ("c.json", vec![4])];
            assert_eq!(
                entries,
                expected.map(|(key, entry)| (key.to_owned(), entry)).into()
            );
            assert!(path.join("d.json.broken").exists() && !path.join("e.json.new").exists());
            for key in ["a", "c.json"] {
                dir.remove(key).unwrap();
            }
        }
    }

    #[test]
    fn valid_entries_are_never_set_aside() {
        let parent = tempfile::tempdir().unwrap();
        let newer = StateDir::<u32>::new(parent.path().join("newer"), 3);
        newer.open("").unwrap();
        newer.put("a", &1).unwrap();
        newer.put("b", &2).unwrap();
        let older = StateDir::<u32>::new(newer.path(), 2);
        let opened = older.open("losing both");
        assert!(matches!(
            opened,
            Err(StateFileError::NewerVersion {
                found: 3,
                known: 2,
                ..
            })
        ));
        assert_eq!(newer.open("").unwrap().len(), 2);
        // A directory in the place of a file is read with an error, as a file of a failing disk is.
        fs::create_dir(newer.path().join("c.json")).unwrap();
        let opened = newer.open("losing one");
        assert!(matches!(opened, Err(StateFileError::Read { .. })));
        assert!(newer.path().join("c.json").exists());
        let unreadable = StateDir::<u32>::new("/proc/self/exe/x", 1);
        let opened = unreadable.open("");
        assert!(matches!(opened, Err(StateFileError::Directory { .. })));
    }

    #[test]
    fn keys_cannot_leave_the_directory() {
        let parent = tempfile::tempdir().unwrap();
        let dir = StateDir::<u32>::new(parent.path().join("pods"), 1);
        dir.open("").unwrap();
        for key in ["", ".", "..", "../x", "a/b", ".hidden", "a\0b"] {
            let put = dir.put(key, &1);
            assert!(matches!(put, Err(StateFileError::Key { .. })), "{key:?}");
            assert!(dir.remove(key).is_err());
        }
    }
}
