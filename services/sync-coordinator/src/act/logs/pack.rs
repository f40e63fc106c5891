//! Packs a rotated log by gzip: aside, whole and on disk, before it takes the place of the other.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

const BLOCK: usize = 64 * 1024;

/// Packs `plain` (`0.log.<stamp>`) into `plain.gz` by way of `plain.tmp`. Owner, mode and time of
/// the last change stay, so that who could read the one can read the other.
pub(super) fn pack(plain: &Path) -> io::Result<()> {
    let aside = beside(plain, ".tmp");
    let done = write(plain, &aside).and_then(|()| {
        fs::rename(&aside, beside(plain, ".gz"))?;
        fs::remove_file(plain)
    });
    if done.is_err() {
        // A full disk must not keep half a file as well; what was not written is not missed.
        let _ = fs::remove_file(&aside);
    }
    done
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn write(plain: &Path, aside: &Path) -> io::Result<()> {
    let from = File::open(plain)?;
    let meta = from.metadata()?;
    let to = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(aside)?;
    to.set_permissions(meta.permissions())?;
    let mut packer = GzEncoder::new(BufWriter::with_capacity(BLOCK, to), Compression::default());
    io::copy(&mut BufReader::with_capacity(BLOCK, from), &mut packer)?;
    let to = packer
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
    fn what_was_in_it_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let plain = dir.path().join("0.log.20260101-000000");
        let text = "a line of a log\n".repeat(10_000);
        fs::write(&plain, &text).unwrap();
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o640)).unwrap();
        let modified = fs::metadata(&plain).unwrap().modified().unwrap();
        // Left by a former life.
        fs::write(beside(&plain, ".tmp"), "half").unwrap();
        pack(&plain).unwrap();

        let packed = dir.path().join("0.log.20260101-000000.gz");
        let mut read = String::new();
        GzDecoder::new(File::open(&packed).unwrap())
            .read_to_string(&mut read)
            .unwrap();
        assert_eq!(read, text);
        let meta = fs::metadata(&packed).unwrap();
        assert_eq!(meta.permissions().mode() & 0o777, 0o640);
        assert_eq!(meta.modified().unwrap(), modified);
        assert!(meta.len() < 2_000);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(pack(&plain).is_err(), "it is gone");
    }
}
