//! The atomic writer: a reader sees the old files or the new ones, never some of each.
//!
//! The files lie in a directory with a time in its name; `..data` points to it and is swapped by
//! one rename; `key` is a link to `..data/key`. Upstream's form, so that either agent can go on
//! with what the other wrote.

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

use super::remove::{self, Budget};
use super::{VolumeError, dir};
use crate::core::spec::{File, Files};

const DATA: &str = "..data";
const DATA_ASIDE: &str = "..data_tmp";
const LINK_ASIDE: &str = "..link_tmp";

/// Writes files into a volume.
pub struct Writer<'a> {
    /// The volume's directory.
    pub dir: BorrowedFd<'a>,
    /// Its path, for messages.
    pub path: &'a Path,
    /// For removing what was there before.
    pub budget: &'a Budget,
    /// Asked before each change; a test plays a crash here.
    pub before_change: &'a mut dyn FnMut() -> Result<(), VolumeError>,
}

impl Writer<'_> {
    /// Makes the volume hold exactly these files. Says whether the content changed.
    pub fn write(&mut self, files: &Files) -> Result<bool, VolumeError> {
        let current = self.current();
        let known = match &current {
            Some((name, dir)) if holds(dir, files) => Some(name.clone()),
            _ => None,
        };
        let (name, changed) = match known {
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

    /// The directory that readers see now.
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

    /// Writes all files aside and swaps them in. The name of their directory.
    fn replace(&mut self, files: &Files) -> Result<String, VolumeError> {
        let (name, fresh) = self.fresh()?;
        let dir_mode = if files.gid.is_some() { 0o2755 } else { 0o755 };
        for (path, file) in files.content.iter() {
            (self.before_change)()?;
            self.put(&fresh, path, file, files.gid, dir_mode)?;
        }
        dir::own(&fresh, dir_mode, files.gid).map_err(self.failed(&name))?;
        (self.before_change)()?;
        self.point(&name, DATA_ASIDE)?;
        (self.before_change)()?;
        renameat(self.dir, DATA_ASIDE, self.dir, DATA).map_err(self.failed(DATA))?;
        Ok(name)
    }

    fn fresh(&mut self) -> Result<(String, OwnedFd), VolumeError> {
        (self.before_change)()?;
        loop {
            let now = Timestamp::now();
            let digits = now.subsec_nanosecond();
            let name = format!("{}.{digits:09}", now.strftime("..%Y_%m_%d_%H_%M_%S"));
            match mkdirat(self.dir, name.as_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => {
                    let fresh = dir::open_below(self.dir, name.as_str());
                    return Ok((name.clone(), fresh.map_err(self.failed(&name))?));
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.failed(&name)(errno)),
            }
        }
    }

    fn put(
        &self,
        fresh: &OwnedFd,
        path: &str,
        file: &File,
        gid: Option<u32>,
        dir_mode: u32,
    ) -> Result<(), VolumeError> {
        let failed = self.failed(path);
        let mut parts: Vec<_> = path.split('/').collect();
        let name = parts.pop().unwrap_or_default();
        let mut parent = fresh.try_clone().map_err(|source| VolumeError::Write {
            path: self.path.join(path),
            source,
        })?;
        for part in parts {
            let (below, made) = dir::make(&parent, part, 0o755).map_err(&failed)?;
            if made {
                dir::own(&below, dir_mode, gid).map_err(&failed)?;
            }
            parent = below;
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
        dir::own_as(&out, file.mode, file.uid, gid).map_err(&failed)
    }

    fn point(&self, to: &str, aside: &str) -> Result<(), VolumeError> {
        match unlinkat(self.dir, aside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.failed(aside)(errno)),
        }
        symlinkat(to, self.dir, aside).map_err(self.failed(aside))
    }

    /// Makes `top` a link to what readers see now.
    fn link(&mut self, top: &str) -> Result<(), VolumeError> {
        let to = format!("{DATA}/{top}");
        let there = readlinkat(self.dir, top, Vec::new());
        if there.is_ok_and(|there| there.as_bytes() == to.as_bytes()) {
            return Ok(());
        }
        (self.before_change)()?;
        self.point(&to, LINK_ASIDE)?;
        renameat(self.dir, LINK_ASIDE, self.dir, top).map_err(self.failed(top))
    }

    /// Removes links to files that are no more, and what earlier writes left.
    fn clean(&mut self, current: &str, tops: &BTreeSet<&str>) -> Result<(), VolumeError> {
        for (name, kind) in dir::names(self.dir).map_err(self.failed(""))? {
            let Ok(text) = name.to_str() else { continue };
            let stale = if text.starts_with("..") {
                text != DATA && text != current
            } else {
                kind == FileType::Symlink && !tops.contains(text) && self.is_our_link(&name)
            };
            if stale {
                (self.before_change)()?;
                remove::tree(self.dir, &name, self.budget).map_err(|source| {
                    VolumeError::Remove {
                        path: self.path.join(text),
                        source,
                    }
                })?;
            }
        }
        Ok(())
    }

    fn is_our_link(&self, name: &CStr) -> bool {
        let to = readlinkat(self.dir, name, Vec::new());
        to.is_ok_and(|to| to.as_bytes().starts_with(b"..data/"))
    }
}

/// Whether a directory holds exactly these files, with these modes and groups.
fn holds(dir: &OwnedFd, files: &Files) -> bool {
    let mut budget = files.content.len();
    if !count(dir.as_fd(), &mut budget, 0) || budget != 0 {
        return false;
    }
    files
        .content
        .iter()
        .all(|(path, file)| same(dir, path, file, files.gid).unwrap_or(false))
}

/// Counts files down from `left`; `false` when there are more, or something else than files.
fn count(dir: BorrowedFd<'_>, left: &mut usize, depth: usize) -> bool {
    let Ok(names) = dir::names(dir) else {
        return false;
    };
    names.iter().all(|(name, kind)| match kind {
        FileType::RegularFile => {
            let more = *left > 0;
            *left = left.saturating_sub(1);
            more
        }
        // A path has at most half as many elements as bytes, but nobody writes such.
        FileType::Directory if depth < 256 => {
            dir::open_on_same(dir, name).is_ok_and(|below| count(below.as_fd(), left, depth + 1))
        }
        _ => false,
    })
}

fn same(dir: &OwnedFd, path: &str, file: &File, gid: Option<u32>) -> io::Result<bool> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    // Not blocking: what was planted there may be a pipe.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let there = openat2(dir, path, flags, Mode::empty(), inside)?;
    let stat = fstat(&there)?;
    let known = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_mode & 0o7777 == file.mode
        && gid.is_none_or(|gid| stat.st_gid == gid)
        && file.uid.is_none_or(|uid| stat.st_uid == uid)
        && u64::try_from(stat.st_size).is_ok_and(|size| size == file.bytes.0.len() as u64);
    if !known {
        return Ok(false);
    }
    let mut bytes = Vec::with_capacity(file.bytes.0.len());
    std::fs::File::from(there)
        .take(file.bytes.0.len() as u64 + 1)
        .read_to_end(&mut bytes)?;
    Ok(bytes == *file.bytes.0)
}
