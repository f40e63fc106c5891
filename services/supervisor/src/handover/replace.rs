//! Starting another program in this process.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_kit::profile;
use rustix::fs::{MemfdFlags, memfd_create};

use super::descriptors::{self, NamedDescriptors};
use super::signals;
use crate::core::handover::HandoverState;

/// Why another program could not be started in this process, which goes on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplaceError {
    #[error("not on the main thread, with which the services would end")]
    Thread,
    #[error("writing the state of the services")]
    State(#[source] std::io::Error),
    #[error("keeping the sockets open")]
    Descriptors(#[from] rustix::io::Errno),
    #[error("an argument or a variable contains a zero byte")]
    Argument(#[from] std::ffi::NulError),
    #[error("starting {path}")]
    Start {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

/// Another program for this process.
pub(crate) struct Replacement<'a> {
    pub(crate) program: &'a Path,
    pub(crate) state: &'a HandoverState,
    /// What stays open.
    pub(crate) descriptors: NamedDescriptors<'a>,
    /// How long the program may take to be in step. Then the kernel ends the process.
    pub(crate) deadline: Duration,
}

/// Starts the program with the arguments and the environment of this one. Comes back only if that fails;
/// nothing has changed then.
pub(crate) fn replace(replacement: Replacement<'_>) -> ReplaceError {
    match prepare_and_start(replacement) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn prepare_and_start(
    replacement: Replacement<'_>,
) -> Result<std::convert::Infallible, ReplaceError> {
    if rustix::thread::gettid() != rustix::process::getpid() {
        return Err(ReplaceError::Thread);
    }
    let Replacement {
        program,
        state,
        mut descriptors,
        deadline,
    } = replacement;
    let state = state_file(state)?;
    descriptors.push((descriptors::STATE.to_owned(), state.as_fd()));
    let args: Result<Vec<CString>, _> = std::env::args_os().map(c_string).collect();
    let mut variables: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    variables.retain(|(name, _)| name != descriptors::VARIABLE);
    variables.push((
        descriptors::VARIABLE.into(),
        descriptors::format(&descriptors),
    ));
    let variables: Result<Vec<CString>, _> = variables.into_iter().map(variable).collect();
    let (args, variables) = (args?, variables?);
    let path = c_string(program.as_os_str().to_owned())?;
    descriptors::set_inherited(&descriptors, true)?;
    signals::block();
    signals::set_alarm(deadline);
    let source = start(&path, &args, &variables);
    signals::set_alarm(Duration::ZERO);
    signals::unblock();
    descriptors::set_inherited(&descriptors, false)?;
    Err(ReplaceError::Start {
        path: program.to_owned(),
        source,
    })
}

/// The state in memory.
pub(crate) fn state_file(state: &HandoverState) -> Result<File, ReplaceError> {
    let filled = memory_file("polylet-handover", |file| {
        serde_json::to_writer(file, state).map_err(Into::into)
    });
    filled.map_err(ReplaceError::State)
}

/// A file in memory, at its start.
pub(crate) fn memory_file(
    name: &str,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> std::io::Result<File> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    let mut writer = std::io::BufWriter::new(&mut file);
    fill(&mut writer)?;
    writer.flush()?;
    drop(writer);
    file.rewind()?;
    Ok(file)
}

fn c_string(text: OsString) -> Result<CString, std::ffi::NulError> {
    CString::new(text.into_vec())
}

fn variable((name, value): (OsString, OsString)) -> Result<CString, std::ffi::NulError> {
    let mut text = name.into_vec();
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    CString::new(text)
}

/// `std::os::unix::process::CommandExt::exec` would change signal handling of this process even if it fails.
#[allow(unsafe_code, reason = "rustix does not start programs")]
fn start(path: &CString, args: &[CString], variables: &[CString]) -> std::io::Error {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        let each = texts.iter().map(|text| text.as_ptr());
        each.chain([std::ptr::null()]).collect()
    };
    let (args, variables) = (pointers(args), pointers(variables));
    profile::stop_timer();
    // SAFETY: both arrays end with a null pointer, and they and their strings outlive the call.
    unsafe {
        libc::execve(path.as_ptr(), args.as_ptr(), variables.as_ptr());
    }
    std::io::Error::last_os_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_would_end_with_another_thread() {
        // Tests run on threads of their own.
        let error = replace(Replacement {
            program: Path::new("/bin/true"),
            state: &HandoverState::new(Vec::new()),
            descriptors: Vec::new(),
            deadline: Duration::from_secs(1),
        });
        assert!(matches!(error, ReplaceError::Thread), "{error}");
    }
}
