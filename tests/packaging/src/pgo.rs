//! The program, compiled by a profile of a node at work: what ran often for speed, the rest for size.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{CommandError, run, run_visibly};
use crate::training::run_benchmarks;

/// Between two flags in `CARGO_ENCODED_RUSTFLAGS`.
const SEPARATOR: &str = "\x1f";

/// A higher counter is an error: what llvm-profdata itself takes for one.
const MAX_COUNT: u64 = 1 << 56;

/// Why there is no such program.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum PgoError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("rustc --version --verbose printed no host")]
    NoHost,
    #[error("there is no {} (rustup component add llvm-tools)", .0.display())]
    NoTool(PathBuf),
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("reading {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("no process has written a profile in {}", .0.display())]
    NoProfile(PathBuf),
}

/// Compiles the program twice, with counters for a profile and by that profile; returns its path.
///
/// # Errors
/// If a tool is missing, a build or a benchmark fails, or a file cannot be read or written.
pub(crate) fn build(with_relocations: bool) -> Result<PathBuf, PgoError> {
    let compiler = Compiler::find()?;
    let target = crate::target_directory();
    let directory = target.join("pgo-profile");
    let profiles = directory.join("profiles");
    let program = compiler.program(&target);
    // What cargo has built by another profile of the same name, it would take for current.
    for stale in program.parent().into_iter().chain([&*directory]) {
        let _ = fs::remove_dir_all(stale);
    }
    fs::create_dir_all(&profiles).map_err(write_error(&profiles))?;

    eprintln!("building the program with counters");
    let counting = directory.join("polylet-multicall");
    run_visibly(compiler.cargo("profile-generate", &profiles, false))?;
    fs::copy(&program, &counting).map_err(write_error(&counting))?;
    run_benchmarks(&counting, &directory.join("bin"))?;

    let profile = compiler.merge(&profiles, &directory)?;
    eprintln!("building the program by the profile");
    run_visibly(compiler.cargo("profile-use", &profile, with_relocations))?;
    let _ = fs::remove_dir_all(&directory);
    Ok(program)
}

/// The Rust compiler, as far as profiles depend on it.
struct Compiler {
    /// The target triple of this machine.
    host: String,
    /// The program that merges profiles, which has to be of the compiler's own LLVM.
    profdata: PathBuf,
}

impl Compiler {
    fn find() -> Result<Self, PgoError> {
        let printed = |argument: &str| {
            let mut rustc = Command::new("rustc");
            rustc.args(argument.split(' ')).current_dir(crate::root());
            let output = run(rustc)?.stdout;
            Ok::<_, PgoError>(String::from_utf8_lossy(&output).into_owned())
        };
        let host = host_of(&printed("--version --verbose")?)?;
        let libraries = printed("--print target-libdir")?;
        let profdata = Path::new(libraries.trim()).with_file_name("bin/llvm-profdata");
        if !profdata.is_file() {
            return Err(PgoError::NoTool(profdata));
        }
        Ok(Self { host, profdata })
    }

    /// Builds the program with a flag of the compiler, beside those of the environment. With `--target`, it does not
    /// concern build scripts and macros.
    fn cargo(&self, flag: &str, path: &Path, with_relocations: bool) -> Command {
        let encoded = std::env::var_os("CARGO_ENCODED_RUSTFLAGS");
        let flags = encoded.or_else(|| {
            let flags = std::env::var("RUSTFLAGS").ok()?;
            let flags: Vec<_> = flags.split_whitespace().collect();
            Some(flags.join(SEPARATOR).into())
        });
        let mut cargo = Command::new("cargo");
        cargo
            .args(["build", "--profile", "pgo", "--bin"])
            .args(["polylet-multicall", "--target", &self.host])
            .env("CARGO_ENCODED_RUSTFLAGS", with_flag(flags, flag, path))
            .current_dir(crate::root());
        if with_relocations {
            cargo.env("POLYLET_EMIT_RELOCS", "1");
        }
        cargo
    }

    /// Where the program is that `cargo` has built.
    fn program(&self, target: &Path) -> PathBuf {
        target.join(&self.host).join("pgo/polylet-multicall")
    }

    /// Merges all profiles, and returns the file with the result, in `directory`.
    fn merge(&self, profiles: &Path, directory: &Path) -> Result<PathBuf, PgoError> {
        let text = directory.join("merged.proftext");
        let merged = directory.join("merged.profdata");
        let mut to_text = Command::new(&self.profdata);
        to_text
            .args(["merge", "--failure-mode=warn", "--text", "--output"])
            .args([&text])
            .args(&written_profiles(profiles)?);
        run(to_text)?;
        let counted = fs::read_to_string(&text).map_err(read_error(&text))?;
        fs::write(&text, without_miscounts(&counted)).map_err(write_error(&text))?;
        let mut to_index = Command::new(&self.profdata);
        to_index.args(["merge", "--output"]).args([&merged, &text]);
        run(to_index)?;
        Ok(merged)
    }
}

fn written_profiles(directory: &Path) -> Result<Vec<PathBuf>, PgoError> {
    let entries = fs::read_dir(directory).map_err(read_error(directory))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let paths: io::Result<Vec<_>> = paths.collect();
    match paths.map_err(read_error(directory))? {
        none if none.is_empty() => Err(PgoError::NoProfile(directory.to_owned())),
        paths => Ok(paths),
    }
}

/// A profile as text, without functions that have a counter out of range. LLVM 22 miscounts in some loops
/// (rust-lang/rust#158217), and beside such a counter all others would seem to be of code that never runs.
fn without_miscounts(profile: &str) -> String {
    let is_counted = |function: &&str| {
        let counters = function
            .lines()
            .skip_while(|line| *line != "# Counter Values:");
        let mut counters = counters.skip(1).take_while(|line| !line.starts_with('#'));
        counters.all(|counter| counter.parse().is_ok_and(|count: u64| count <= MAX_COUNT))
    };
    let functions: Vec<_> = profile.trim_end().split("\n\n").collect();
    let counted: Vec<_> = functions.into_iter().filter(is_counted).collect();
    counted.join("\n\n") + "\n\n"
}

/// Flags as cargo reads them from `CARGO_ENCODED_RUSTFLAGS`, and one more.
fn with_flag(flags: Option<OsString>, flag: &str, path: &Path) -> OsString {
    let mut flags = flags.unwrap_or_default();
    if !flags.is_empty() {
        flags.push(SEPARATOR);
    }
    flags.push(format!("-C{flag}="));
    flags.push(path);
    flags
}

fn host_of(version: &str) -> Result<String, PgoError> {
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or(PgoError::NoHost)
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> PgoError + use<> {
    let path = path.to_owned();
    |source| PgoError::Read { path, source }
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> PgoError + use<> {
    let path = path.to_owned();
    |source| PgoError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_environment_stay() {
        let profile = Path::new("/a b/merged");
        assert_eq!(
            with_flag(None, "profile-use", profile),
            "-Cprofile-use=/a b/merged"
        );
        assert_eq!(
            with_flag(Some("-Ctarget-cpu=native".into()), "profile-use", profile),
            "-Ctarget-cpu=native\x1f-Cprofile-use=/a b/merged"
        );
    }

    #[test]
    fn the_host_is_read_from_what_the_compiler_prints() {
        let printed = "rustc 1.95.0\nbinary: rustc\nhost: aarch64-unknown-linux-gnu\n";
        assert_eq!(host_of(printed).unwrap(), "aarch64-unknown-linux-gnu");
        assert!(matches!(host_of(""), Err(PgoError::NoHost)));
    }

    #[test]
    fn functions_with_counters_out_of_range_are_left_out() {
        let function = |name: &str, counters: &str| {
            format!(
                "{name}\n# Func Hash:\n525313593663749060\n# Num Counters:\n2\n# Counter Values:\n{counters}\n\n"
            )
        };
        let head = "# IR level Instrumentation Flag\n:ir\n".to_owned();
        let first = head + &function("first", "1\n2");
        let last = function("last", "3\n4\n# Num Value Kinds:\n1\n0\n1\n_called:9");
        for wrong in ["1\n18446744073709550116", "72057594037927937\n0"] {
            let profile = first.clone() + &function("wrong", wrong) + &last;
            assert_eq!(without_miscounts(&profile), first.clone() + &last);
        }
    }

    #[test]
    fn no_profile_is_an_error() {
        let profiles = tempfile::tempdir().unwrap();
        let written = || written_profiles(profiles.path());
        assert!(matches!(written(), Err(PgoError::NoProfile(_))));
        fs::write(profiles.path().join("default_1_0.profraw"), "").unwrap();
        assert_eq!(written().unwrap().len(), 1);
    }
}
