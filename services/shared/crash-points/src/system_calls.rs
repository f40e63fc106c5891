//! The functions of the C library that change files and mounts, with points around them.
//!
//! The linker prefers a function of the program to one of a shared library, so that the standard library
//! and every crate call these. Opening a file and synchronizing it have no points: the one is followed by
//! a write, and the other changes nothing that the kill of a process could show.

#![allow(unsafe_code)] // definitions of functions of the C library

use std::ffi::CStr;

use libc::{AT_FDCWD, c_char, c_int, c_long, c_uint, c_ulong, c_void, mode_t, size_t, ssize_t};

use crate::control::{self, Phase};
use crate::name;

/// Uses each function, so that the linker keeps it.
pub(crate) fn install() {
    let functions: [*const (); 17] = [
        write as _,
        mkdir as _,
        mkdirat as _,
        rmdir as _,
        unlink as _,
        unlinkat as _,
        rename as _,
        renameat as _,
        renameat2 as _,
        symlink as _,
        symlinkat as _,
        link as _,
        linkat as _,
        mount as _,
        umount2 as _,
        chmod as _,
        fchownat as _,
    ];
    std::hint::black_box(functions);
}

/// A system call with its points. `path` names what it changes; `None` for what is no effect.
fn effect(
    call: &str,
    path: impl FnOnce() -> Option<String>,
    run: impl FnOnce() -> c_long,
) -> c_long {
    let named = control::is_enabled().then(path).flatten();
    let named = named.filter(|path| path.starts_with('/') && !is_ignored(path));
    let Some(path) = named else { return run() };
    let effect = format!("{call} {}", name::of_path(&path));
    control::reach(Phase::Before, || effect.clone());
    let result = run();
    // SAFETY: the address of this thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    if result != -1 {
        control::reach(Phase::After, || effect);
    }
    // SAFETY: as above. The points have changed it.
    unsafe { *libc::__errno_location() = errno };
    result
}

/// Kernel interfaces of the process itself, and the test's own files.
fn is_ignored(path: &str) -> bool {
    path.starts_with("/proc/") || path.starts_with("/dev/") || control::is_own(path)
}

/// The absolute path of an argument of a system call.
fn resolve(directory: c_int, path: *const c_char) -> Option<String> {
    if path.is_null() {
        return None;
    }
    // SAFETY: callers of the C library pass strings that end with zero.
    let path = unsafe { CStr::from_ptr(path) }.to_string_lossy();
    if path.starts_with('/') {
        return Some(path.into_owned());
    }
    let base = match directory {
        AT_FDCWD => std::env::current_dir(),
        directory => std::fs::read_link(format!("/proc/self/fd/{directory}")),
    };
    Some(format!("{}/{path}", base.ok()?.display()))
}

/// The path of an open regular file.
fn opened(file: c_int) -> Option<String> {
    // Standard output and error are logs.
    if file <= 2 {
        return None;
    }
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills it, or fails; zeros are valid in any case.
    let stat = unsafe {
        libc::fstat(file, stat.as_mut_ptr());
        stat.assume_init()
    };
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let path = std::fs::read_link(format!("/proc/self/fd/{file}")).ok()?;
    Some(path.to_string_lossy().into_owned())
}

fn code(result: c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

/// Defines a function that makes a system call, named by the path at a directory.
macro_rules! intercept {
    ($(fn $name:ident($($arg:ident: $kind:ty),*) at ($dir:expr, $path:expr) = $number:ident($($value:expr),*);)+) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($arg: $kind),*) -> c_int {
            // SAFETY: the caller's arguments are those of the system call.
            code(effect(stringify!($name), || resolve($dir, $path), || unsafe {
                libc::syscall(libc::$number, $($value),*)
            }))
        }
    )+};
}

intercept! {
    fn mkdir(path: *const c_char, mode: mode_t) at (AT_FDCWD, path) = SYS_mkdirat(AT_FDCWD, path, mode);
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) at (dir, path) = SYS_mkdirat(dir, path, mode);
    fn rmdir(path: *const c_char) at (AT_FDCWD, path) = SYS_unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR);
    fn unlink(path: *const c_char) at (AT_FDCWD, path) = SYS_unlinkat(AT_FDCWD, path, 0);
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) at (dir, path) = SYS_unlinkat(dir, path, flags);
    fn rename(from: *const c_char, to: *const c_char) at (AT_FDCWD, to)
        = SYS_renameat2(AT_FDCWD, from, AT_FDCWD, to, 0);
    fn renameat(dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) at (to_dir, to)
        = SYS_renameat2(dir, from, to_dir, to, 0);
    fn renameat2(dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) at (to_dir, to)
        = SYS_renameat2(dir, from, to_dir, to, flags);
    fn symlink(target: *const c_char, path: *const c_char) at (AT_FDCWD, path)
        = SYS_symlinkat(target, AT_FDCWD, path);
    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) at (dir, path)
        = SYS_symlinkat(target, dir, path);
    fn link(from: *const c_char, to: *const c_char) at (AT_FDCWD, to)
        = SYS_linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
    fn linkat(dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) at (to_dir, to)
        = SYS_linkat(dir, from, to_dir, to, flags);
    fn mount(from: *const c_char, at: *const c_char, kind: *const c_char, flags: c_ulong, data: *const c_void)
        at (AT_FDCWD, at) = SYS_mount(from, at, kind, flags, data);
    fn umount2(at: *const c_char, flags: c_int) at (AT_FDCWD, at) = SYS_umount2(at, flags);
    fn chmod(path: *const c_char, mode: mode_t) at (AT_FDCWD, path) = SYS_fchmodat(AT_FDCWD, path, mode);
    fn fchownat(dir: c_int, path: *const c_char, user: libc::uid_t, group: libc::gid_t, flags: c_int)
        at (dir, path) = SYS_fchownat(dir, path, user, group, flags);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(file: c_int, from: *const c_void, size: size_t) -> ssize_t {
    let written = effect(
        "write",
        || opened(file),
        // SAFETY: the caller's arguments are those of the system call.
        || unsafe { libc::syscall(libc::SYS_write, file, from, size) },
    );
    ssize_t::try_from(written).unwrap_or(-1)
}
