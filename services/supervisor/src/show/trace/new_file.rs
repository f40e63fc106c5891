//! A file that appears under its name when it is complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::client::ClientError;

/// A file that is written aside, and removed unless it is finished.
pub(super) struct NewFile {
    path: PathBuf,
    aside: PathBuf,
    file: Option<BufWriter<File>>,
}

impl NewFile {
    /// Begins a file beside the one of this name, if there is one.
    pub(super) fn create(path: &Path) -> Result<NewFile, ClientError> {
        NewFile::try_create(path).map_err(|source| failed(path, source))
    }

    fn try_create(path: &Path) -> io::Result<NewFile> {
        // A pipe or a device would be replaced, too.
        let is_replaceable = fs::metadata(path).map_or(true, |found| found.is_file());
        let Some(name) = path.file_name().filter(|_| is_replaceable) else {
            return Err(io::Error::other("not a regular file"));
        };
        let mut hidden = OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.new", std::process::id()));
        let aside = path.with_file_name(hidden);
        let mut options = File::options();
        let options = options.write(true).create_new(true).mode(0o600);
        let file = options.open(&aside)?;
        Ok(NewFile {
            path: path.to_owned(),
            aside,
            file: Some(BufWriter::new(file)),
        })
    }

    /// Writes to the file.
    pub(super) fn write(
        &mut self,
        content: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), ClientError> {
        let written = match &mut self.file {
            Some(file) => content(file),
            None => Ok(()),
        };
        written.map_err(|source| failed(&self.path, source))
    }

    /// Gives the file its name, once it is on the disk.
    pub(super) fn finish(mut self) -> Result<(), ClientError> {
        self.try_finish()
            .map_err(|source| failed(&self.path, source))
    }

    fn try_finish(&mut self) -> io::Result<()> {
        if let Some(file) = &mut self.file {
            file.flush()?;
            file.get_ref().sync_all()?;
        }
        fs::rename(&self.aside, &self.path)?;
        self.file = None;
        let directory = self.path.parent();
        let directory = directory.filter(|path| !path.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            // What is still in its buffer is not wanted either.
            drop(file.into_parts());
            let _ = fs::remove_file(&self.aside);
        }
    }
}

fn failed(path: &Path, source: io::Error) -> ClientError {
    ClientError::Write {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name =
            |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        entries.map(name).collect()
    }

    #[test]
    fn the_file_appears_at_the_end_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("traces.jsonl");
        let mut file = NewFile::create(&path).unwrap();
        file.write(|to| to.write_all(b"new")).unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(files(directory.path()), [""; 0]);
        fs::write(&path, "before").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        let full = file.write(|_| Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(full, Err(ClientError::Write { .. })));
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
        let mut file = NewFile::create(&path).unwrap();
        file.write(|to| to.write_all(b"new")).unwrap();
        file.finish().unwrap();
        assert_eq!(files(directory.path()), ["traces.jsonl"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(matches!(
            NewFile::create(directory.path()),
            Err(ClientError::Write { .. })
        ));
    }
}
