//! The directory through which a test records and arms points.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Where a point is relative to its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Before,
    During,
    After,
}

impl Phase {
    fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::During => "during",
            Self::After => "after",
        }
    }
}

/// What the environment and the command line of this process say.
struct Control {
    directory: PathBuf,
    service: String,
    /// Runs a task of the service, whose process is to be killed.
    is_subprocess: bool,
}

thread_local! {
    /// This thread is at a point: what it does there is no effect of the program.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs a piece of this crate's own work; `None` within another one.
fn aside<T>(work: impl FnOnce() -> T) -> Option<T> {
    // A thread that ends has no such value any more.
    if INSIDE.try_with(|inside| inside.replace(true)).ok()? {
        return None;
    }
    let done = work();
    let _ = INSIDE.try_with(|inside| inside.set(false));
    Some(done)
}

fn control() -> Option<&'static Control> {
    static CONTROL: OnceLock<Option<Control>> = OnceLock::new();
    CONTROL.get_or_init(from_environment).as_ref()
}

fn from_environment() -> Option<Control> {
    let directory = PathBuf::from(std::env::var_os(crate::VARIABLE)?);
    let mut args = std::env::args();
    let program = args.next()?;
    let (_, program) = program.rsplit_once('/').unwrap_or(("", &program));
    let first = args.next();
    let service = match program.strip_prefix("polylet-") {
        Some(service) => service,
        // Other subcommands change nothing themselves.
        None if first.as_deref() == Some("run") => "supervisor",
        None => return None,
    };
    Some(Control {
        directory,
        service: service.to_owned(),
        is_subprocess: first.as_deref() == Some("run-subprocess"),
    })
}

/// Whether points matter in this process.
#[cfg(feature = "system-calls")]
pub(crate) fn is_enabled() -> bool {
    aside(|| control().is_some()).unwrap_or_default()
}

/// Whether a path belongs to the test and not to the program.
#[cfg(feature = "system-calls")]
pub(crate) fn is_own(path: &str) -> bool {
    control().is_some_and(|control| path.starts_with(&*control.directory.to_string_lossy()))
}

/// Passes a point: it is recorded, and if it is armed this does not return.
pub(crate) fn reach(phase: Phase, effect: impl FnOnce() -> String) {
    aside(|| {
        if let Some(control) = control()
            && control.pass(phase, &effect())
        {
            kill();
        }
    });
}

/// The same for a point that is reached a little later; whether the process has to end then.
pub(crate) fn reach_later(effect: &str) -> bool {
    let passed = aside(|| control().is_some_and(|control| control.pass(Phase::During, effect)));
    passed.unwrap_or_default()
}

impl Control {
    /// Records the point, and returns whether it was armed.
    fn pass(&self, phase: Phase, effect: &str) -> bool {
        let line = format!("{} {} {effect}", self.service, phase.word());
        // A line is written at once, so that those of several processes do not mix.
        let record = File::options()
            .append(true)
            .open(self.directory.join("record"));
        if let Ok(mut record) = record {
            let _ = record.write_all(format!("{line}\n").as_bytes());
        }
        let armed = self.directory.join("armed");
        let Ok(file) = File::open(&armed) else {
            return false;
        };
        // The processes of a service count together.
        // SAFETY: the descriptor is open for as long as the file lives.
        #[allow(unsafe_code)] // a lock that ends with the process
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) };
        let Some((count, expected)) = fs::read_to_string(&armed).ok().and_then(|text| {
            let (count, line) = text.trim_end().split_once(' ')?;
            Some((count.parse::<u32>().ok()?, line.to_owned()))
        }) else {
            return false;
        };
        if locked != 0 || expected != line {
            return false;
        }
        if count > 1 {
            let _ = fs::write(&armed, format!("{} {line}\n", count - 1));
            return false;
        }
        fs::rename(&armed, self.directory.join("crashed")).is_ok()
    }
}

/// Ends the service's process.
pub(crate) fn kill() -> ! {
    let is_subprocess = control().is_some_and(|control| control.is_subprocess);
    // SAFETY: these calls take no pointers.
    #[allow(unsafe_code)] // the process must end at once, and not by its own means
    unsafe {
        let target = if is_subprocess {
            libc::getppid()
        } else {
            libc::getpid()
        };
        libc::kill(target, libc::SIGKILL);
        loop {
            // A subprocess is killed with its parent.
            libc::pause();
        }
    }
}
