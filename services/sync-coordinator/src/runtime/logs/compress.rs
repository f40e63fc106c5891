//! Compression of a rotated log with gzip: into a temporary file, which is synced before it replaces
//! the log.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const BUFFER_SIZE: usize = 64 * 1024;

/// Compresses `<log>` (`0.log.<timestamp>`) into `<log>.gz` by way of `<log>.tmp`, with the same
/// permissions and modification time.
pub(super) fn compress(log: &Path) -> io::Result<()> {
    let temporary = with_suffix(log, ".tmp");
    let result = write(log, &temporary).and_then(|()| {
        fs::rename(&temporary, with_suffix(log, ".gz"))?;
        fs::remove_file(log)
    });
    if result.is_err() {
        // Frees the space of an incomplete file; there may be none.
        let _ = fs::remove_file(&temporary);
    }
    result
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn write(log: &Path, temporary: &Path) -> io::Result<()> {
    let from = File::open(log)?;
    let meta = from.metadata()?;
    let to = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(temporary)?;
    to.set_permissions(meta.permissions())?;
    let mut encoder = GzEncoder::new(
        BufWriter::with_capacity(BUFFER_SIZE, to),
        Compression::default(),
    );
    io::copy(
        &mut BufReader::with_capacity(BUFFER_SIZE, from),
        &mut encoder,
    )?;
    let to = encoder
        .finish()?
        .into_inner()
        .map_err(|error| error.into_error())?;
    if let Ok(modified) = meta.modified() {
        to.set_times(FileTimes::new().set_modified(modified))?;
    }
    to.sync_all()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use flate2::read::GzDecoder;

    use super::*;

    #[test]
    fn compressed_log_has_the_content_of_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("0.log.20260101-000000");
        let text = "a line of a log\n".repeat(10_000);
        fs::write(&plain, &text).unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o640)).unwrap();
        let modified = fs::metadata(&plain).unwrap().modified().unwrap();
        // Left by a previous process instance.
        fs::write(with_suffix(&plain, ".tmp"), "half").unwrap();
        compress(&plain).unwrap();

        let compressed = dir.path().join("0.log.20260101-000000.gz");
        let mut read = String::new();
        GzDecoder::new(File::open(&compressed).unwrap())
            .read_to_string(&mut read)
            .unwrap();
        assert_eq!(read, text);
        let meta = fs::metadata(&compressed).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o640);
        assert_eq!(meta.modified().unwrap(), modified);
        assert!(meta.len() < 2_000);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(compress(&plain).is_err(), "the log is gone");
    }
}
