use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

use crate::cleanup;

static RUNS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static SIGNALS: Once = Once::new();

/// Removes the run in a directory on drop, including panics.
#[derive(Debug)]
pub struct CleanupGuard {
    dir: PathBuf,
    cleaned_up: bool,
}

impl CleanupGuard {
    /// A guard for the run in `dir`.
    pub fn new(dir: &Path) -> Self {
        runs().push(dir.to_owned());
        Self {
            dir: dir.to_owned(),
            cleaned_up: false,
        }
    }

    /// Removes the run now and returns what could not be removed.
    pub fn sweep(&mut self) -> Vec<String> {
        self.cleaned_up = true;
        let left = cleanup::sweep(&self.dir);
        runs().retain(|dir| *dir != self.dir);
        left
    }
}

impl Drop for CleanupGuard {
    fn drop(&mut self) {
        if self.cleaned_up {
            return;
        }
        if std::env::var_os("POLYLET_TEST_KEEP").is_some() {
            eprintln!(
                "not removed (POLYLET_TEST_KEEP is set): {}",
                self.dir.display()
            );
            return;
        }
        for left in self.sweep() {
            eprintln!("failed to remove: {left}");
        }
    }
}

/// Installs handlers for SIGINT, SIGTERM and SIGHUP that remove all runs of this process before it
/// exits. For tests; a program with its own shutdown drops its guards instead.
pub fn on_signals() {
    SIGNALS.call_once(|| {
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let Ok(runtime) = runtime else { return };
            let number = runtime.block_on(first_signal());
            eprintln!("signal {number}: removing test resources");
            for dir in runs().clone() {
                cleanup::sweep(&dir);
            }
            std::process::exit(128 + number);
        });
    });
}

async fn first_signal() -> i32 {
    let streams = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
        signal(SignalKind::hangup()),
    );
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = streams else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => 2,
        _ = terminate.recv() => 15,
        _ = hangup.recv() => 1,
    }
}

fn runs() -> std::sync::MutexGuard<'static, Vec<PathBuf>> {
    RUNS.lock().unwrap_or_else(PoisonError::into_inner)
}
