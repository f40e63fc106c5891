//! Builds the Debian package out of a program that exists, with a cargo-deb of its own version.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{CommandError, run};
use crate::extras;

/// The version of cargo-deb that the package is described for.
const CARGO_DEB: &str = "3.8.0";

/// The name of the program in the directory of built programs.
const PROGRAM: &str = "polylet-multicall";

/// Why there is no package.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum DebError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("writing {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("copying {}", path.display())]
    Program { path: PathBuf, source: io::Error },
}

/// Builds the package from the multicall program `program` into the file `output`. `fast` compresses
/// less, for a package that is not sent anywhere.
///
/// # Errors
/// If cargo-deb cannot be installed or fails, or a file cannot be written.
pub fn build(program: &Path, output: &Path, fast: bool) -> Result<(), DebError> {
    let target = crate::root().join("target");
    make_dir(&target)?;
    // The paths of the package's content are constant: one build at a time.
    let _lock = lock(&target.join("package.lock"))?;
    let tool = cargo_deb(&target)?;
    let package = target.join("package");
    extras::write(&package).map_err(write_error(&package))?;
    let built = package.join("release");
    make_dir(&built)?;
    let copy = built.join(PROGRAM);
    fs::copy(program, &copy).map_err(|source| DebError::Program {
        path: program.to_owned(),
        source,
    })?;
    let mut command = Command::new(tool);
    command
        .args(["deb", "--quiet", "--no-build", "--package", PROGRAM])
        // Profiles name functions, and strip(1) breaks what BOLT has written.
        .arg("--no-strip")
        .args(["--compress-system", "--output"])
        .arg(output)
        .args(
            fast.then_some(["--fast", "--compress-type=gz"])
                .into_iter()
                .flatten(),
        )
        // Where it looks for built programs.
        .env("CARGO_TARGET_DIR", &package)
        .current_dir(crate::root());
    run(command)?;
    Ok(())
}

/// The pinned cargo-deb, compiled at its first use. It is no dependency, as its own would change those of
/// the services: features of crates are those of all who use them.
fn cargo_deb(target: &Path) -> Result<PathBuf, DebError> {
    let root = target.join(format!("tools/cargo-deb-{CARGO_DEB}"));
    let program = root.join("bin/cargo-deb");
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("compiling cargo-deb {CARGO_DEB}, once (about a minute)");
    let mut command = Command::new("cargo");
    command
        .args(["install", "cargo-deb", "--quiet", "--locked"])
        .args(["--version", CARGO_DEB])
        // Compresses by the system's programs.
        .args(["--no-default-features", "--no-track", "--root"])
        .arg(&root)
        .arg("--target-dir")
        .arg(target.join("tools/build"));
    run(command)?;
    // As large as the tool is small.
    let _ = fs::remove_dir_all(target.join("tools/build"));
    Ok(program)
}

fn make_dir(path: &Path) -> Result<(), DebError> {
    fs::create_dir_all(path).map_err(write_error(path))
}

fn lock(path: &Path) -> Result<File, DebError> {
    let file = File::create(path).map_err(write_error(path))?;
    file.lock().map_err(write_error(path))?;
    Ok(file)
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> DebError + use<> {
    let path = path.to_owned();
    |source| DebError::Write { path, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;
    use crate::{DESCRIPTORS, SUPERVISOR};

    /// An installation below a directory of its own, with `package` and what services run.
    struct Installation(tempfile::TempDir);

    impl Installation {
        /// Nothing is installed.
        fn new() -> Self {
            let installation = Self(tempfile::tempdir().unwrap());
            for name in ["systemctl", "systemd-sysusers", "systemd-tmpfiles"] {
                write_program(&installation.path("bin").join(name), "");
            }
            installation
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// Unpacks a build of the package: a new file in the place of the old one. All have the same version.
        fn unpack(&self, build: &str) {
            let package = self.path("lib/package");
            let body = format!("echo polylet 0.1.0 # {build}");
            write_program(&package.join(".new"), &body);
            fs::rename(package.join(".new"), package.join(PROGRAM)).unwrap();
        }

        /// Runs `postinst`; returns what it prints. `before` is the package's version before, if any.
        fn configure(&self, before: &str) -> String {
            let script = crate::root().join("systemd/debian/postinst");
            let script = fs::read_to_string(script).unwrap();
            let library = self.path("lib").display().to_string();
            let path = format!("{}:/usr/bin:/bin", self.path("bin").display());
            let output = Command::new("sh")
                .args(["-c", &script.replace("/usr/lib/polylet", &library)])
                .args(["postinst", "configure", before])
                .env("PATH", path)
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        }

        /// What each service runs when it is started.
        fn programs(&self) -> Vec<(PathBuf, u64, String)> {
            let link = |service: &str| match service {
                SUPERVISOR => self.path("lib/polylet"),
                _ => self.path("lib").join(format!("polylet-{service}")),
            };
            let links = DESCRIPTORS.iter().map(|one| link(one.service));
            let read = |link: PathBuf| {
                let inode = fs::metadata(&link).unwrap().ino();
                let text = fs::read_to_string(&link).unwrap();
                (fs::read_link(link).unwrap(), inode, text)
            };
            links.map(read).collect()
        }
    }

    fn write_program(path: &Path, body: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_first_installation_runs_the_packages_program() {
        let node = Installation::new();
        node.unpack("one");
        let printed = node.configure("");
        assert!(printed.contains("nothing was started"), "{printed}");
        assert!(!printed.contains("polylet upgrade"), "{printed}");
        let package = fs::metadata(node.path("lib/package").join(PROGRAM));
        let inode = package.unwrap().ino();
        // One file, so that all processes share its pages.
        assert!(node.programs().iter().all(|program| program.1 == inode));
    }

    #[test]
    fn an_upgrade_of_the_package_leaves_what_services_run() {
        let node = Installation::new();
        node.unpack("one");
        node.configure("");
        let before = node.programs();
        node.unpack("one");
        let printed = node.configure("0.1.0");
        assert!(!printed.contains("polylet upgrade"), "{printed}");
        assert_eq!(node.programs(), before, "the same build");
        node.unpack("two");
        let printed = node.configure("0.1.0");
        assert!(printed.contains("polylet upgrade --all --to"), "{printed}");
        assert_eq!(node.programs(), before, "another build");
    }

    #[test]
    fn an_upgrade_of_the_package_leaves_versions_to_go_back_to() {
        let node = Installation::new();
        node.unpack("one");
        node.configure("");
        // As `polylet upgrade` does.
        let (first, second) = ("pleg/0.1.0/polylet-pleg", "pleg/0.1.0-2/polylet-pleg");
        let library = node.path("lib");
        write_program(&library.join(second), "echo polylet 0.1.0 # two");
        fs::remove_file(library.join("polylet-pleg")).unwrap();
        std::os::unix::fs::symlink(second, library.join("polylet-pleg")).unwrap();
        let read = || [first, second].map(|name| fs::read_to_string(library.join(name)).unwrap());
        let before = read();
        node.unpack("three");
        node.configure("0.1.0");
        assert_eq!(read(), before);
    }
}
