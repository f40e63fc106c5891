//! The atomic writer: a reader sees all old files or all new ones.
//!
//! The files are in a directory named by a timestamp; `..data` is a link to it that is replaced by
//! one rename; `key` is a link to `..data/key`. The format is the kubelet's, so that either agent can
//! update what the other has written.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use jiff::Timestamp;
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat,
    renameat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::delete;
use super::{VolumeError, dir};
use crate::core::files::{VolumeFile, VolumeFiles};

const DATA: &str = "..data";
const DATA_TEMP: &str = "..data_tmp";
const LINK_TEMP: &str = "..link_tmp";

/// Writes files into a volume.
pub struct AtomicWriter<'a> {
    /// The volume's directory.
    pub dir: BorrowedFd<'a>,
    /// Its path, for errors.
    pub path: &'a Path,
    /// Called before each change; a test simulates a crash here.
    pub before_change: &'a mut dyn FnMut() -> Result<(), VolumeError>,
}

impl AtomicWriter<'_> {
    /// Replaces the content of the volume by these files; returns whether it has changed.
    pub fn write(&mut self, files: &VolumeFiles) -> Result<bool, VolumeError> {
        let current = self.current();
        let unchanged = match &current {
            Some((name, dir)) if has_content(dir, files) => Some(name.clone()),
            _ => None,
        };
        let (name, changed) = match unchanged {
            Some(name) => (name, false),
            None => (self.replace(files)?, true),
        };
        let tops: BTreeSet<&str> = files
            .content
            .keys()
            .filter_map(|path| path.split('/').next())
            .collect();
        for top in &tops {
            self.link(top)?;
        }
        self.clean(&name, &tops)?;
        Ok(changed)
    }

    fn failed(&self, name: &str) -> impl Fn(Errno) -> VolumeError + use<> {
        let path = self.path.join(name);
        move |errno| VolumeError::Write {
            path: path.clone(),
            source: errno.into(),
        }
    }

    /// The directory that `..data` links to.
    fn current(&self) -> Option<(String, OwnedFd)> {
        let name = readlinkat(self.dir, DATA, Vec::new())
            .ok()?
            .into_string()
            .ok()?;
        if !name.starts_with("..") || name == ".." || name.contains('/') {
            return None;
        }
        let dir = dir::open_below(self.dir, name.as_str()).ok()?;
        Some((name, dir))
    }

    /// Writes all files to a new directory and links it; returns its name.
    fn replace(&mut self, files: &VolumeFiles) -> Result<String, VolumeError> {
        let (name, new_dir) = self.make_dir()?;
        let dir_mode = if files.gid.is_some() { 0o2755 } else { 0o755 };
        for (path, file) in files.content.iter() {
            (self.before_change)()?;
            self.write_file(&new_dir, path, file, files.gid, dir_mode)?;
        }
        dir::set_owner(&new_dir, dir_mode, files.gid).map_err(self.failed(&name))?;
        (self.before_change)()?;
        self.symlink(&name, DATA_TEMP)?;
        (self.before_change)()?;
        renameat(self.dir, DATA_TEMP, self.dir, DATA).map_err(self.failed(DATA))?;
        Ok(name)
    }

    fn make_dir(&mut self) -> Result<(String, OwnedFd), VolumeError> {
        (self.before_change)()?;
        loop {
            let now = Timestamp::now();
            let digits = now.subsec_nanosecond();
            let name = format!("{}.{digits:09}", now.strftime("..%Y_%m_%d_%H_%M_%S"));
            match mkdirat(self.dir, name.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let new_dir = dir::open_below(self.dir, name.as_str());
                    return Ok((name.clone(), new_dir.map_err(self.failed(&name))?));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.failed(&name)(errno)),
            }
        }
    }

    fn write_file(
        &self,
        new_dir: &OwnedFd,
        path: &str,
        file: &VolumeFile,
        gid: Option<u32>,
        dir_mode: u32,
    ) -> Result<(), VolumeError> {
        let failed = self.failed(path);
        let mut parts: Vec<_> = path.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        let mut parent = new_dir.try_clone().map_err(|source| VolumeError::Write {
            path: self.path.join(path),
            source,
        })?;
        for part in parts {
            let (child, created) = dir::make(&parent, part, 0o755).map_err(&failed)?;
            if created {
                dir::set_owner(&child, dir_mode, gid).map_err(&failed)?;
            }
            parent = child;
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let created = openat(
            &parent,
            name,
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        );
        let mut out = std::fs::File::from(created.map_err(&failed)?);
        let written = out.write_all(&file.bytes.0);
        written.map_err(|source| VolumeError::Write {
            path: self.path.join(path),
            source,
        })?;
        dir::set_owner_as(&out, file.mode, file.uid, gid).map_err(&failed)
    }

    fn symlink(&self, to: &str, name: &str) -> Result<(), VolumeError> {
        match unlinkat(self.dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.failed(name)(errno)),
        }
        symlinkat(to, self.dir, name).map_err(self.failed(name))
    }

    /// Makes `top` a link into `..data`.
    fn link(&mut self, top: &str) -> Result<(), VolumeError> {
        let to = format!("{DATA}/{top}");
        let target = readlinkat(self.dir, top, Vec::new());
        if target.is_ok_and(|target| target.as_bytes() == to.as_bytes()) {
            return Ok(());
        }
        (self.before_change)()?;
        self.symlink(&to, LINK_TEMP)?;
        renameat(self.dir, LINK_TEMP, self.dir, top).map_err(self.failed(top))
    }

    /// Removes links to deleted files, and the directories of earlier writes.
    fn clean(&mut self, current: &str, tops: &BTreeSet<&str>) -> Result<(), VolumeError> {
        let names = dir::names(self.dir).map_err(self.failed(""))?;
        for entry in names {
            let (name, kind) = entry.map_err(self.failed(""))?;
            let Ok(text) = name.to_str() else { continue };
            let stale = if text.starts_with("..") {
                text != DATA && text != current
            } else {
                kind == FileType::Symlink && !tops.contains(text) && self.is_our_link(&name)
            };
            if stale {
                (self.before_change)()?;
                let deleted = delete::tree(self.dir, &name, &mut delete::attempt());
                deleted.map_err(|error| error.at(&self.path.join(text)))?;
            }
        }
        Ok(())
    }

    fn is_our_link(&self, name: &CStr) -> bool {
        let to = readlinkat(self.dir, name, Vec::new());
        to.is_ok_and(|to| to.as_bytes().starts_with(b"..data/"))
    }
}

/// Whether a directory has exactly these files, with these modes and groups.
fn has_content(dir: &OwnedFd, files: &VolumeFiles) -> bool {
    let mut left = files.content.len();
    if !count(dir.as_fd(), &mut left, 0) || left != 0 {
        return false;
    }
    files
        .content
        .iter()
        .all(|(path, file)| is_same(dir, path, file, files.gid).unwrap_or(false))
}

/// Counts files down from `left`; `false` if there are more, or anything but files.
fn count(dir: BorrowedFd<'_>, left: &mut usize, depth: usize) -> bool {
    let Ok(mut names) = dir::names(dir) else {
        return false;
    };
    names.all(
        |entry| match entry.as_ref().map(|(name, kind)| (name, *kind)) {
            Ok((_, FileType::RegularFile)) => {
                let more = *left > 0;
                *left = left.saturating_sub(1);
                more
            }
            // Far deeper than any path of a manifest.
            Ok((name, FileType::Directory)) if depth < 256 => dir::open_on_same_fs(dir, name)
                .is_ok_and(|below| count(below.as_fd(), left, depth + 1)),
            _ => false,
        },
    )
}

fn is_same(dir: &OwnedFd, path: &str, file: &VolumeFile, gid: Option<u32>) -> io::Result<bool> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    // Nonblocking: a pod may have planted a pipe there.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = openat2(dir, path, flags, Mode::empty(), inside)?;
    let stat = fstat(&opened)?;
    let same_metadata = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == file.mode
        && gid.is_none_or(|gid| stat.st_gid == gid)
        && file.uid.is_none_or(|uid| stat.st_uid == uid)
        && u64::try_from(stat.st_size).is_ok_and(|size| size == file.bytes.0.len() as u64);
    if !same_metadata {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(file.bytes.0.len());
    std::fs::File::from(opened)
        .take(file.bytes.0.len() as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes == *file.bytes.0)
}
