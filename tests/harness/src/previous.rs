//! The programs of an earlier version of the repository, built from git.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::build::{self, Profile};
use crate::error::{HarnessError, file};
use crate::{cache, machine};

/// Number of digits of a commit in names of directories.
const SHORT: usize = 12;

/// An earlier version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreviousVersion {
    /// The tag, or what was asked for.
    pub name: String,
    /// The commit's full id.
    pub commit: String,
}

impl PreviousVersion {
    /// The version of a reference such as a tag or a commit; without one the last tag `v*` that is
    /// reachable.
    ///
    /// # Errors
    /// [`HarnessError::NoPreviousVersion`] if there is none.
    pub fn find(reference: Option<&str>) -> Result<Self, HarnessError> {
        let none = |hint: &'static str| {
            move |source| HarnessError::NoPreviousVersion {
                hint,
                source: Box::new(source),
            }
        };
        let name = match reference {
            Some(reference) => reference.to_owned(),
            None => git(&["describe", "--tags", "--abbrev=0", "--match", "v*"]).map_err(none(
                "no tag v* is reachable: `git fetch --tags`, or name a commit with `--previous REF`",
            ))?,
        };
        let commit = format!("{name}^{{commit}}");
        let commit = git(&["rev-parse", "--verify", "--quiet", &commit])
            .map_err(none("the version before is not in this repository"))?;
        Ok(Self { name, commit })
    }

    /// Builds its programs, unless they are there, and returns the directory of their names, below the
    /// target directory. Versions share their compiled dependencies.
    ///
    /// # Errors
    /// Fails if the source cannot be exported or does not compile.
    pub async fn programs(&self, say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
        let all = machine::target_dir().join("previous");
        let short = self.commit.get(..SHORT).unwrap_or(&self.commit);
        let dir = all.join(short);
        let _lock = cache::lock(&all, &|| say("waiting for another build")).await?;
        let names = dir.join("node");
        if names.join(build::MULTICALL).is_file() {
            return Ok(names);
        }
        // Written anew for each build: cargo takes files of another version for the same ones, and
        // compiles what is newer than its last build.
        let source = dir.join("source");
        export(&self.commit, &source)?;
        say(&format!("building {} ({short})", self.name));
        build::earlier(&source, &all.join("build"), Profile::Demo, &names).await?;
        Ok(names)
    }
}

/// Writes the files of a commit to a directory, as if they were new. The repository is only read: a work
/// tree of git would be registered in it.
fn export(commit: &str, to: &Path) -> Result<(), HarnessError> {
    if to.exists() {
        file("remove", to, fs::remove_dir_all(to))?;
    }
    file("make", to, fs::create_dir_all(to))?;
    let run_error = |program: &str| {
        let program = program.to_owned();
        move |source| HarnessError::Run { program, source }
    };
    let mut archive = Command::new("git")
        .args(["archive", "--format=tar", commit])
        .current_dir(machine::workspace())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(run_error("git archive"))?;
    let mut unpack = Command::new("tar");
    unpack.args(["--extract", "--touch", "--directory"]).arg(to);
    let archived = archive.stdout.take().map_or(Stdio::null(), Stdio::from);
    let unpacked = unpack.stdin(archived).status();
    let archived = archive.wait();
    build::check("git archive", archived)?;
    build::check("tar", unpacked)
}

/// The output of a git command in the repository.
fn git(args: &[&str]) -> Result<String, HarnessError> {
    let workspace = machine::workspace().display().to_string();
    let args: Vec<&str> = ["-C", &workspace]
        .into_iter()
        .chain(args.iter().copied())
        .collect();
    let output = machine::run(Path::new("git"), &args)?;
    Ok(output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_by_its_name() {
        let head = PreviousVersion::find(Some("HEAD")).expect("a commit");
        assert_eq!((head.name.as_str(), head.commit.len()), ("HEAD", 40));
        let error = PreviousVersion::find(Some("no-such-version")).expect_err("none");
        let text = crate::error::report(&error);
        assert!(text.contains("not in this repository"), "{text}");
    }
}
