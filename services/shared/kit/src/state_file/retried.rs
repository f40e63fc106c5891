//! A file that is written when its data changes, and again as long as that has failed.

use serde::Serialize;

use super::{StateFile, StateFileError};

/// A state file that remembers whether it holds the last data. Without that, data that does not change
/// again would never be written after a disk was full for a moment.
#[derive(Debug)]
pub struct RetriedFile<T> {
    file: StateFile<T>,
    unsaved: bool,
}

impl<T: Serialize> RetriedFile<T> {
    /// For a file that holds the present data.
    pub fn new(file: StateFile<T>) -> Self {
        RetriedFile {
            file,
            unsaved: false,
        }
    }

    /// Saves the data if it has changed since the last call, or could not be saved then. Blocks. To be
    /// called now and then without a change.
    pub fn save_changed(&mut self, changed: bool, data: &T) -> Result<(), StateFileError> {
        self.unsaved |= changed;
        if !self.unsaved {
            return Ok(());
        }
        self.file.save(data)?;
        self.unsaved = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_data_is_written_until_that_succeeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        let mut file = RetriedFile::new(StateFile::<u32>::new(&path, 1));
        file.save_changed(false, &1).unwrap();
        assert!(!path.exists());
        // A directory in the file's place fails for root as well.
        std::fs::create_dir(&path).unwrap();
        assert!(file.save_changed(true, &1).is_err());
        assert!(file.save_changed(false, &1).is_err());
        std::fs::remove_dir(&path).unwrap();
        file.save_changed(false, &1).unwrap();
        assert_eq!(StateFile::new(&path, 1).load().unwrap(), Some(1));
        std::fs::remove_file(&path).unwrap();
        file.save_changed(false, &1).unwrap();
        assert!(!path.exists(), "it was saved");
    }
}
