use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;

use polylet_fuzz::{TARGET_VARIABLE, Target};

use crate::FuzzError;
use crate::build::target_directory;

/// Time after which an input hangs, in seconds. Slow inputs that end are found by their processor time.
const HANG: u32 = 20;
/// Memory of the engine in megabytes. That of an input is limited by the allocator.
const MEMORY: u32 = 2048;

/// An engine and how long it runs.
pub(crate) struct Session {
    pub(crate) engine: PathBuf,
    pub(crate) seconds: u64,
}

/// The directories of a target outside the tree.
struct Directories {
    /// Inputs that reached new code in this and earlier runs.
    corpus: PathBuf,
    /// Inputs that failed.
    findings: PathBuf,
    log: PathBuf,
}

impl Session {
    /// Fuzzes the targets, this many at a time. Returns whether nothing was found.
    pub(crate) fn fuzz(&self, targets: &[&Target], jobs: usize) -> Result<bool, FuzzError> {
        let queue = Mutex::new(targets.iter());
        let next = || queue.lock().ok().and_then(|mut queue| queue.next());
        let worker = || {
            let mut clean = true;
            while let Some(target) = next() {
                clean &= self.fuzz_target(target)?;
            }
            Ok(clean)
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(worker)).collect();
            let results = workers.into_iter().map(|worker| worker.join());
            let mut clean = true;
            for result in results {
                clean &= result.unwrap_or(Ok(false))?;
            }
            Ok(clean)
        })
    }

    fn fuzz_target(&self, target: &Target) -> Result<bool, FuzzError> {
        let dirs = Directories::create(target)?;
        let log = File::create(&dirs.log).map_err(write_error(&dirs.log))?;
        let mut command = self.command(target, &dirs);
        command
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(format!("-max_len={}", target.max_length))
            .args(["-print_final_stats=1", "-use_value_profile=1"])
            .arg(&dirs.corpus)
            .args(present([target.corpus(), target.regressions()]))
            .stderr(log);
        let status = self.run(&mut command)?;
        println!("{:<16} {}", target.name, summary(&dirs.log, status));
        if !status.success() {
            print_finding(target, &dirs);
        }
        Ok(status.success())
    }

    /// Reduces an input that fails.
    pub(crate) fn minimize(&self, targets: &[&Target], input: &Path) -> Result<bool, FuzzError> {
        let [target] = targets else {
            return Err(FuzzError::OneTarget);
        };
        let dirs = Directories::create(target)?;
        let mut command = self.command(target, &dirs);
        command
            .arg("-minimize_crash=1")
            .arg(format!("-max_total_time={}", self.seconds))
            .arg(input);
        Ok(self.run(&mut command)?.success())
    }

    fn command(&self, target: &Target, dirs: &Directories) -> Command {
        let mut command = Command::new(&self.engine);
        command
            .env(TARGET_VARIABLE, target.name)
            .arg(format!("-timeout={HANG}"))
            .arg(format!("-rss_limit_mb={MEMORY}"))
            .arg("-detect_leaks=0")
            .arg(format!("-artifact_prefix={}/", dirs.findings.display()))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, command: &mut Command) -> Result<ExitStatus, FuzzError> {
        command.status().map_err(|source| FuzzError::Run {
            program: self.engine.display().to_string(),
            source,
        })
    }
}

impl Directories {
    fn create(target: &Target) -> Result<Self, FuzzError> {
        let root = target_directory().join("fuzz").join(target.name);
        let dirs = Directories {
            corpus: root.join("corpus"),
            findings: root.join("findings"),
            log: root.join("log"),
        };
        for dir in [&dirs.corpus, &dirs.findings] {
            fs::create_dir_all(dir).map_err(write_error(dir))?;
        }
        Ok(dirs)
    }
}

fn write_error(path: &Path) -> impl Fn(std::io::Error) -> FuzzError {
    let path = path.to_owned();
    move |source| FuzzError::Write {
        path: path.clone(),
        source,
    }
}

fn present(dirs: [PathBuf; 2]) -> impl Iterator<Item = PathBuf> {
    dirs.into_iter().filter(|dir| dir.is_dir())
}

/// The number of inputs, and how the engine ended.
fn summary(log: &Path, status: ExitStatus) -> String {
    let text = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
    let number = |name: &str| {
        let line = text.lines().rfind(|line| line.contains(name));
        line.and_then(|line| line.split_whitespace().last())
            .unwrap_or("?")
            .to_owned()
    };
    let inputs = number("stat::number_of_executed_units");
    match status.success() {
        true => format!("{inputs} inputs, nothing found"),
        false => format!("FAILED, {status}"),
    }
}

/// Prints the end of the log, which has the panic and the path of the input.
fn print_finding(target: &Target, dirs: &Directories) {
    let text = String::from_utf8_lossy(&fs::read(&dirs.log).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(25);
    for line in lines.iter().skip(last) {
        println!("    {line}");
    }
    println!(
        "    minimize it: cargo fuzz-long --target {} --minimize <input>, and store it in {}",
        target.name,
        target.regressions().display()
    );
}
