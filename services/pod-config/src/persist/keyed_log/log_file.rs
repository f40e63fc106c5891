//! The file format: one line per record, appended when the record changes. The last line of a key is
//! its current record; a line without a record deletes it.
//!
//! Each line is a JSON object with the version of the format, so that a corrupt line affects no
//! other. A crash leaves at most a truncated last line, which is ignored.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polylet_kit::state_file::{self, StateFileError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the format.
pub(crate) const VERSION: u32 = 3;
/// A file is compacted when it is larger than twice its live records and this.
const SLACK: u64 = 256 * 1024;

/// Result of loading a file.
pub(super) struct LoadResult<K, T> {
    pub(super) records: BTreeMap<K, T>,
    /// The file to append to; `None` when it must be written as a whole.
    pub(super) file: Option<LogFile<K>>,
    /// Numbers of the corrupt lines.
    pub(super) corrupt: Vec<usize>,
}

#[derive(Serialize)]
struct LineRef<'a, K, T> {
    version: u32,
    key: &'a K,
    #[serde(skip_serializing_if = "Option::is_none")]
    record: Option<&'a T>,
}

#[derive(Deserialize)]
struct LogLine<K, T> {
    version: u32,
    key: K,
    record: Option<T>,
}

/// A file that is open for appending.
pub(crate) struct LogFile<K> {
    path: PathBuf,
    file: File,
    /// Length of the live line of each key, in bytes.
    lines: BTreeMap<K, u64>,
    /// Sum of these lengths.
    live: u64,
    length: u64,
}

impl<K: Ord + Serialize> LogFile<K> {
    /// Writes all records, and replaces the file with them.
    pub(crate) fn create<T: Serialize>(
        path: &Path,
        records: impl IntoIterator<Item = (K, T)>,
    ) -> Result<Self, StateFileError> {
        let mut lines = Vec::new();
        let file = state_file::replace(path, |file| {
            for (key, record) in records {
                let line = encode(&key, Some(&record))?;
                file.write_all(&line)?;
                lines.push((key, line.len()));
            }
            Ok(())
        });
        let mut file = LogFile {
            file: file.map_err(write_error(path))?,
            path: path.to_owned(),
            lines: BTreeMap::new(),
            live: 0,
            length: 0,
        };
        for (key, length) in lines {
            file.account(key, length, true);
        }
        Ok(file)
    }

    /// Appends changed records. After an error the file must be written as a whole.
    pub(crate) fn append<T: Serialize>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<T>)>,
    ) -> Result<(), StateFileError> {
        let path = self.path.clone();
        self.try_append(changes).map_err(write_error(&path))
    }

    fn try_append<T: Serialize>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<T>)>,
    ) -> io::Result<()> {
        // What is written to a deleted or replaced file is lost.
        let (present, open) = (fs::metadata(&self.path)?, self.file.metadata()?);
        if (present.dev(), present.ino()) != (open.dev(), open.ino()) {
            return Err(io::Error::other("the file was replaced"));
        }
        let mut writer = BufWriter::with_capacity(1 << 16, self.file.try_clone()?);
        for (key, record) in changes {
            if record.is_none() && !self.lines.contains_key(&key) {
                continue;
            }
            let line = encode(&key, record.as_ref())?;
            writer.write_all(&line)?;
            self.account(key, line.len(), record.is_some());
        }
        writer.flush()?;
        self.file.sync_data()
    }

    fn account(&mut self, key: K, length: usize, live: bool) {
        let length = length as u64;
        self.length += length;
        let before = if live {
            self.live += length;
            self.lines.insert(key, length)
        } else {
            self.lines.remove(&key)
        };
        self.live -= before.unwrap_or(0);
    }

    /// Whether there are deleted or replaced records.
    pub(super) fn has_dead_records(&self) -> bool {
        self.length > self.live
    }

    /// Whether there are so many that compaction is worthwhile.
    pub(super) fn needs_compaction(&self) -> bool {
        self.length > 2 * self.live + SLACK
    }
}

/// Loads the records that `filter` accepts.
pub(super) fn load<K, T>(
    path: &Path,
    filter: impl Fn(&K, &T) -> bool,
) -> Result<LoadResult<K, T>, StateFileError>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    T: DeserializeOwned,
{
    let mut result = LoadResult {
        records: BTreeMap::new(),
        file: None,
        corrupt: Vec::new(),
    };
    let read_error = |source| StateFileError::Read {
        path: path.to_owned(),
        source,
    };
    let file = match File::options().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(result),
        Err(source) => return Err(read_error(source)),
    };
    let mut reader = BufReader::with_capacity(1 << 16, file.try_clone().map_err(read_error)?);
    let mut file = LogFile {
        path: path.to_owned(),
        file,
        lines: BTreeMap::new(),
        live: 0,
        length: 0,
    };
    let (mut line, mut number, mut appendable) = (Vec::new(), 0, true);
    loop {
        line.clear();
        number += 1;
        if reader.read_until(b'\n', &mut line).map_err(read_error)? == 0 {
            break;
        }
        let terminated = line.ends_with(b"\n");
        appendable &= terminated;
        match serde_json::from_slice::<LogLine<K, T>>(&line) {
            Ok(read) if read.version == VERSION => {
                let record = read.record.filter(|record| {
                    let accepted = filter(&read.key, record);
                    appendable &= accepted;
                    accepted
                });
                file.account(read.key.clone(), line.len(), record.is_some());
                match record {
                    Some(record) => drop(result.records.insert(read.key, record)),
                    None => drop(result.records.remove(&read.key)),
                }
            }
            _ => {
                appendable = false;
                // A crash truncates the last line, but never the first.
                if terminated || number == 1 {
                    result.corrupt.push(number);
                }
            }
        }
    }
    result.file = appendable.then_some(file);
    Ok(result)
}

fn encode<K: Serialize, T: Serialize>(key: &K, record: Option<&T>) -> io::Result<Vec<u8>> {
    let version = VERSION;
    let mut line = serde_json::to_vec(&LineRef {
        version,
        key,
        record,
    })?;
    line.push(b'\n');
    Ok(line)
}

fn write_error(path: &Path) -> impl Fn(io::Error) -> StateFileError {
    let path = path.to_owned();
    move |source| StateFileError::Write {
        path: path.clone(),
        source,
    }
}
