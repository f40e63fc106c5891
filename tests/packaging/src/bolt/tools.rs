//! The programs of BOLT, and how they are called.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BoltError, LAYOUT};

/// The newest version that is looked for by its number; Debian's programs have it in their names.
const NEWEST: u32 = 40;

/// BOLT's programs of one version.
pub(super) struct BoltTools {
    /// The file itself and not a link to it: what an instrumented program counts and writes with is found
    /// beside it.
    bolt: PathBuf,
    merge: PathBuf,
}

impl BoltTools {
    /// The programs in `PATH`: those without a version, or else the newest.
    pub(super) fn find() -> Result<Self, BoltError> {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<_> = std::env::split_paths(&directories).collect();
        Self::find_in(&directories)
    }

    fn find_in(directories: &[PathBuf]) -> Result<Self, BoltError> {
        let in_path = |name: &str| {
            let mut files = directories.iter().map(|directory| directory.join(name));
            files.find(|path| path.is_file())
        };
        let versions = (1..=NEWEST).rev().map(|version| format!("-{version}"));
        let found = std::iter::once(String::new())
            .chain(versions)
            .find_map(|suffix| Some((in_path(&format!("llvm-bolt{suffix}"))?, suffix)));
        let (bolt, suffix) = found.ok_or(BoltError::NoTool("llvm-bolt"))?;
        let merge = in_path(&format!("merge-fdata{suffix}"));
        let merge = merge.ok_or(BoltError::NoTool("merge-fdata"))?;
        let bolt = bolt.canonicalize().unwrap_or(bolt);
        let installation = bolt.ancestors().nth(2).unwrap_or(Path::new("/"));
        let runtime = installation.join("lib/libbolt_rt_instr.a");
        if !runtime.is_file() {
            return Err(BoltError::NoRuntime(runtime));
        }
        Ok(Self { bolt, merge })
    }

    /// Writes a program whose processes each leave a profile in a file whose name begins with `profile`.
    pub(super) fn instrument(&self, program: &Path, output: &Path, profile: &Path) -> Command {
        let option = |name: &str, value: &Path| format!("{name}={}", value.display());
        let mut command = Command::new(&self.bolt);
        command
            .arg("-instrument")
            .arg(option("--instrumentation-file", profile))
            .arg("--instrumentation-file-append-pid")
            .arg(program)
            .arg("-o")
            .arg(output);
        command
    }

    /// Prints the sum of profiles.
    pub(super) fn merge(&self, profiles: &[PathBuf]) -> Command {
        let mut command = Command::new(&self.merge);
        command.args(profiles);
        command
    }

    /// Writes the program that is laid out by a profile.
    pub(super) fn optimize(&self, program: &Path, output: &Path, profile: &Path) -> Command {
        let mut command = Command::new(&self.bolt);
        command
            .args(LAYOUT)
            .arg(format!("-data={}", profile.display()))
            .arg(program)
            .arg("-o")
            .arg(output);
        command
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_version_is_taken_and_what_is_missing_is_named() {
        let root = tempfile::tempdir().unwrap();
        let path = [root.path().join("usr/bin")];
        fs::create_dir_all(&path[0]).unwrap();
        let find = || BoltTools::find_in(&path);
        assert!(matches!(find(), Err(BoltError::NoTool("llvm-bolt"))));
        for version in [19, 22] {
            let installation = root.path().join(format!("usr/lib/llvm-{version}"));
            fs::create_dir_all(installation.join("bin")).unwrap();
            fs::create_dir_all(installation.join("lib")).unwrap();
            for name in ["llvm-bolt", "merge-fdata"] {
                let file = installation.join("bin").join(name);
                fs::write(&file, "").unwrap();
                let link = path[0].join(format!("{name}-{version}"));
                std::os::unix::fs::symlink(&file, link).unwrap();
            }
        }
        let expected = root.path().join("usr/lib/llvm-22/lib/libbolt_rt_instr.a");
        assert!(matches!(find(), Err(BoltError::NoRuntime(path)) if path == expected));
        fs::write(&expected, "").unwrap();
        assert!(find().unwrap().bolt.ends_with("llvm-22/bin/llvm-bolt"));
        fs::remove_file(path[0].join("merge-fdata-22")).unwrap();
        assert!(matches!(find(), Err(BoltError::NoTool("merge-fdata"))));
    }
}
