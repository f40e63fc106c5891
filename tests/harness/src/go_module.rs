use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use tokio::process::Command;

use crate::cache::{self, Fingerprint};
use crate::error::{HarnessError, file};

/// The oldest Go version with automatic download of the toolchain required by `go.mod`.
const OLDEST_GO: (u32, u32) = (1, 21);

/// How a program is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GoBuild {
    /// A program for this machine, with cgo.
    Native,
    /// A program without shared libraries, which runs in an otherwise empty image. Without cgo.
    Static,
    /// The same with cgo, which shares most compiled packages with the module's other programs.
    StaticCgo,
    /// The tests of a package, with cgo.
    Tests,
}

impl GoBuild {
    fn command(self) -> &'static [&'static str] {
        match self {
            Self::Native | Self::Static | Self::StaticCgo => &["build"],
            // Vetted by those who release them.
            Self::Tests => &["test", "-c", "-vet=off"],
        }
    }

    /// The same value for all programs of a module shares their compiled packages.
    fn cgo(self) -> &'static str {
        match self {
            Self::Native | Self::Tests | Self::StaticCgo => "1",
            Self::Static => "0",
        }
    }

    fn linker_flags(self) -> &'static str {
        match self {
            Self::Native | Self::Tests | Self::Static => "",
            Self::StaticCgo => " -linkmode=external -extldflags=-static",
        }
    }
}

/// A program and its Go package.
#[derive(Debug, Clone, Copy)]
pub struct GoProgram {
    /// Name of the built file.
    pub name: &'static str,
    /// The package's import path, or its path in the module.
    pub package: &'static str,
    /// How it is built.
    pub build: GoBuild,
}

/// A Go module that pins programs. They are built once and cached in the build directory.
#[derive(Debug)]
pub struct GoModule {
    source: PathBuf,
    cache: PathBuf,
    linker_flags: String,
    /// What is built and how long it takes, for messages.
    announcement: &'static str,
    /// Locked while a program is missing: one process builds, the others wait.
    lock: Option<File>,
}

impl GoModule {
    /// The module in `source`, with a cache of this name. `inputs` are files of the module that the
    /// programs are built from besides `go.mod` and `go.sum`.
    ///
    /// # Errors
    /// Fails if a file of the module cannot be read.
    pub fn open(
        name: &str,
        source: &Path,
        inputs: &[&str],
        announcement: &'static str,
    ) -> Result<Self, HarnessError> {
        Ok(Self {
            source: source.to_owned(),
            cache: cache_dir(name, source, inputs)?,
            linker_flags: "-s -w".to_owned(),
            announcement,
            lock: None,
        })
    }

    /// The same with the version variables of Kubernetes: without them its programs report version
    /// 0.0.0 and reject newer feature gates and API versions.
    ///
    /// # Errors
    /// Fails if `go.mod` cannot be read.
    pub fn with_kubernetes_version(mut self) -> Result<Self, HarnessError> {
        let path = self.source.join("go.mod");
        let text = file("read", &path, fs::read_to_string(&path))?;
        self.linker_flags = kubernetes_flags(kubernetes_version(&text).unwrap_or("v0.0.0"));
        Ok(self)
    }

    /// Path of a program, built if necessary. An interrupted build is resumed.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or the program cannot be built.
    pub async fn program(
        &mut self,
        program: &GoProgram,
        say: &dyn Fn(&str),
    ) -> Result<PathBuf, HarnessError> {
        let path = self.cache.join(program.name);
        if path.is_file() {
            return Ok(path);
        }
        if self.lock.is_none() {
            let waiting = format!("waiting for another process: {}", self.announcement);
            self.lock = Some(cache::lock(&self.cache, &|| say(&waiting)).await?);
            installed_go().await?;
            say(self.announcement);
        }
        // The previous lock holder may have built it.
        if !path.is_file() {
            let begun = Instant::now();
            say(&format!("building {}", program.name));
            let part = self.cache.join(format!("{}.part", program.name));
            self.build(program, &part).await?;
            file("move", &path, fs::rename(&part, &path))?;
            let seconds = begun.elapsed().as_secs();
            say(&format!("built {} in {seconds} s", program.name));
        }
        Ok(path)
    }

    async fn build(&self, program: &GoProgram, to: &Path) -> Result<(), HarnessError> {
        let title = format!("go build {}", program.package);
        let ran = Command::new("go")
            .args(program.build.command())
            .args(["-trimpath", "-mod=readonly", "-ldflags"])
            .arg(format!(
                "{}{}",
                self.linker_flags,
                program.build.linker_flags()
            ))
            .arg("-o")
            .args([to.as_os_str(), program.package.as_ref()])
            .env("CGO_ENABLED", program.build.cgo())
            .current_dir(&self.source)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let output = ran.map_err(|source| HarnessError::Run {
            program: title.clone(),
            source,
        })?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let last: Vec<&str> = text.lines().rev().take(15).collect();
        Err(HarnessError::Failed {
            program: title,
            status: output.status.to_string(),
            output: last.into_iter().rev().collect::<Vec<_>>().join("\n"),
        })
    }
}

/// Cache directory of a module's programs.
///
/// # Errors
/// Fails if a file of the module cannot be read.
pub fn cache_dir(name: &str, source: &Path, inputs: &[&str]) -> Result<PathBuf, HarnessError> {
    let mut fingerprint = Fingerprint::default();
    for name in ["go.mod", "go.sum"].iter().chain(inputs) {
        let path = source.join(name);
        fingerprint.add(&file("read", &path, fs::read(&path))?);
    }
    Ok(cache::dir(name, &fingerprint))
}

/// Fails unless a sufficiently new Go is installed.
///
/// # Errors
/// [`HarnessError::NoGo`].
pub async fn installed_go() -> Result<(), HarnessError> {
    let ran = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await;
    let found = match ran {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => return Err(HarnessError::NoGo { found: None }),
    };
    if go_version(&found).is_none_or(|version| version < OLDEST_GO) {
        return Err(HarnessError::NoGo { found: Some(found) });
    }
    Ok(())
}

/// Parses `go1.26.8` into numbers.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("go")?.split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor: String = numbers
        .next()?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    Some((major, minor.parse().ok()?))
}

fn kubernetes_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let at = "k8s.io/component-base/version";
    format!(
        "-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

/// The Kubernetes version in the text of `go.mod`.
fn kubernetes_version(text: &str) -> Option<&str> {
    let words = |line: &'static str| move |text: &str| text.trim().starts_with(line);
    let mut lines = text.lines().filter(|line| {
        words("require k8s.io/kubernetes ")(line) || words("k8s.io/kubernetes ")(line)
    });
    let line = lines.next()?;
    line.split_whitespace().find(|word| word.starts_with('v'))
}

#[cfg(test)]
mod tests {
    use super::{go_version, kubernetes_flags, kubernetes_version};

    #[test]
    fn versions_of_go() {
        assert_eq!(go_version("go1.26.8"), Some((1, 26)));
        assert_eq!(go_version("go1.27rc1"), Some((1, 27)));
        assert_eq!(go_version("devel"), None);
    }

    #[test]
    fn version_of_kubernetes() {
        let text = "module x\n\tk8s.io/kubernetes/cmd/kubectl\nrequire k8s.io/kubernetes v1.36.3\n";
        assert_eq!(kubernetes_version(text), Some("v1.36.3"));
        assert_eq!(
            kubernetes_version("require (\n\tk8s.io/kubernetes v1.9.0\n)"),
            Some("v1.9.0")
        );
        assert!(kubernetes_flags("v1.36.3").contains("gitMinor=36 "));
    }
}
