//! The file: a line for each entry as it was when it was written, behind the lines from before. Of
//! lines with one key the last one counts; one without an entry says that there is none any more.
//!
//! Each line is JSON of its own with the version of its form, so that what breaks one costs no
//! other. A crash leaves at most the beginning of a last line, which counts for nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use polylet_kit::kept::{self, KeptError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the lines. Files of version 1 were written whole.
const VERSION: u32 = 2;
/// Files that hold more than twice what counts, and so much, are written whole again.
const SLACK: u64 = 256 * 1024;

/// How what was kept is read.
pub(crate) struct Form<K, T> {
    /// Reads a file of version 1.
    pub(crate) whole: fn(&[u8]) -> Option<All<K, T>>,
}

type All<K, T> = Vec<(K, T)>;

/// What was found.
pub(super) struct Found<K, T> {
    pub(super) entries: BTreeMap<K, T>,
    /// To be written on; nothing when it must be written whole.
    pub(super) file: Option<EntryFile<K>>,
    /// Which lines could not be read.
    pub(super) broken: Vec<usize>,
}

#[derive(Serialize)]
struct Written<'a, K, T> {
    version: u32,
    key: &'a K,
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a T>,
}

#[derive(Deserialize)]
struct Read<K, T> {
    version: u32,
    key: K,
    entry: Option<T>,
}

/// The form of the files from before.
#[derive(Deserialize)]
struct Whole<'a> {
    version: u32,
    #[serde(borrow)]
    data: &'a serde_json::value::RawValue,
}

/// A file to be written on.
pub(crate) struct EntryFile<K> {
    path: PathBuf,
    file: File,
    /// The length of the line that counts, in bytes.
    lines: BTreeMap<K, u64>,
    /// All of these together.
    counts: u64,
    length: u64,
}

impl<K: Ord + Serialize> EntryFile<K> {
    /// Writes all of it, in place of what there was.
    pub(crate) fn create<T: Serialize>(
        path: &Path,
        all: impl IntoIterator<Item = (K, T)>,
    ) -> Result<Self, KeptError> {
        let mut lines = Vec::new();
        let file = kept::replace(path, |file| {
            for (key, entry) in all {
                let line = line(&key, Some(&entry))?;
                file.write_all(&line)?;
                lines.push((key, line.len()));
            }
            Ok(())
        });
        let mut file = EntryFile {
            file: file.map_err(not_written(path))?,
            path: path.to_owned(),
            lines: BTreeMap::new(),
            counts: 0,
            length: 0,
        };
        for (key, length) in lines {
            file.count(key, length, true);
        }
        Ok(file)
    }

    /// Writes what has changed behind it. After an error the file must be written whole.
    pub(crate) fn append<T: Serialize>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<T>)>,
    ) -> Result<(), KeptError> {
        let path = self.path.clone();
        self.add(changes).map_err(not_written(&path))
    }

    fn add<T: Serialize>(
        &mut self,
        changes: impl IntoIterator<Item = (K, Option<T>)>,
    ) -> io::Result<()> {
        // What goes to a file that somebody has taken away is lost.
        let (there, ours) = (fs::metadata(&self.path)?, self.file.metadata()?);
        if (there.dev(), there.ino()) != (ours.dev(), ours.ino()) {
            return Err(io::Error::other("it was replaced by another file"));
        }
        let mut writer = BufWriter::with_capacity(1 << 16, self.file.try_clone()?);
        for (key, entry) in changes {
            if entry.is_none() && !self.lines.contains_key(&key) {
                continue;
            }
            let line = line(&key, entry.as_ref())?;
            writer.write_all(&line)?;
            self.count(key, line.len(), entry.is_some());
        }
        writer.flush()?;
        self.file.sync_data()
    }

    fn count(&mut self, key: K, length: usize, is: bool) {
        let length = length as u64;
        self.length += length;
        let before = if is {
            self.counts += length;
            self.lines.insert(key, length)
        } else {
            self.lines.remove(&key)
        };
        self.counts -= before.unwrap_or(0);
    }

    /// Whether it holds anything that counts no more.
    pub(super) fn has_waste(&self) -> bool {
        self.length > self.counts
    }

    /// Whether writing it whole is worth it.
    pub(super) fn is_wasteful(&self) -> bool {
        self.length > 2 * self.counts + SLACK
    }
}

/// Reads what there is and is wanted.
pub(super) fn load<K, T>(
    path: &Path,
    form: &Form<K, T>,
    wanted: impl Fn(&K, &T) -> bool,
) -> Result<Found<K, T>, KeptError>
where
    K: Ord + Clone + Serialize + DeserializeOwned,
    T: DeserializeOwned,
{
    let mut found = Found {
        entries: BTreeMap::new(),
        file: None,
        broken: Vec::new(),
    };
    let not_read = |source| KeptError::Read {
        path: path.to_owned(),
        source,
    };
    let file = match File::options().read(true).append(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(source) => return Err(not_read(source)),
    };
    let mut reader = BufReader::with_capacity(1 << 16, file.try_clone().map_err(not_read)?);
    let mut file = EntryFile {
        path: path.to_owned(),
        file,
        lines: BTreeMap::new(),
        counts: 0,
        length: 0,
    };
    let (mut line, mut number, mut sound) = (Vec::new(), 0, true);
    loop {
        line.clear();
        number += 1;
        if reader.read_until(b'\n', &mut line).map_err(not_read)? == 0 {
            break;
        }
        let ends = line.ends_with(b"\n");
        sound &= ends;
        match serde_json::from_slice::<Read<K, T>>(&line) {
            Ok(read) if read.version == VERSION => {
                let entry = read.entry.filter(|entry| {
                    let wanted = wanted(&read.key, entry);
                    sound &= wanted;
                    wanted
                });
                file.count(read.key.clone(), line.len(), entry.is_some());
                match entry {
                    Some(entry) => drop(found.entries.insert(read.key, entry)),
                    None => drop(found.entries.remove(&read.key)),
                }
            }
            _ => {
                sound = false;
                match former(&line, form) {
                    Some(all) => {
                        let all = all.into_iter().filter(|(key, entry)| wanted(key, entry));
                        found.entries.extend(all);
                    }
                    // A line without an end is one that a crash cut off, but never the first.
                    None if ends || number == 1 => found.broken.push(number),
                    None => {}
                }
            }
        }
    }
    found.file = sound.then_some(file);
    Ok(found)
}

fn former<K, T>(line: &[u8], form: &Form<K, T>) -> Option<All<K, T>> {
    let whole: Whole<'_> = serde_json::from_slice(line).ok()?;
    let data = (whole.version == 1).then_some(whole.data)?;
    (form.whole)(data.get().as_bytes())
}

fn line<K: Serialize, T: Serialize>(key: &K, entry: Option<&T>) -> io::Result<Vec<u8>> {
    let version = VERSION;
    let mut line = serde_json::to_vec(&Written {
        version,
        key,
        entry,
    })?;
    line.push(b'\n');
    Ok(line)
}

fn not_written(path: &Path) -> impl Fn(io::Error) -> KeptError {
    let path = path.to_owned();
    move |source| KeptError::Write {
        path: path.clone(),
        source,
    }
}
