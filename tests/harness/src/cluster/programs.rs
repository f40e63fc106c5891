use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use tokio::process::Command;

use crate::cache::{self, Fingerprint};
use crate::error::{HarnessError, file};
use crate::machine;

/// The oldest Go version with automatic download of the toolchain required by `go.mod`.
const OLDEST_GO: (u32, u32) = (1, 21);

/// A program and its Go package.
struct ProgramSource {
    name: &'static str,
    package: &'static str,
}

const SOURCES: [ProgramSource; 6] = [
    ProgramSource {
        name: "etcd",
        package: "go.etcd.io/etcd/server/v3",
    },
    ProgramSource {
        name: "kube-apiserver",
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
    },
    ProgramSource {
        name: "kubectl",
        package: "k8s.io/kubernetes/cmd/kubectl",
    },
    ProgramSource {
        name: "kube-controller-manager",
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
    },
    ProgramSource {
        name: "kube-scheduler",
        package: "k8s.io/kubernetes/cmd/kube-scheduler",
    },
    ProgramSource {
        name: "kubelet",
        package: "k8s.io/kubernetes/cmd/kubelet",
    },
];

/// Control plane binaries: from the directory in KUBEBUILDER_ASSETS, then from PATH, else built
/// from the Go module `tests/controlplane` and cached in the build directory.
#[derive(Debug, Clone)]
pub struct Programs {
    found: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Finds the binaries and builds missing ones: minutes the first time, nothing afterwards. An
    /// interrupted build is resumed.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or a program cannot be built.
    pub async fn ready(say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let mut found = Vec::new();
        let mut cache = None;
        for source in &SOURCES {
            let given = assets.as_deref().and_then(|dir| given(dir, source.name));
            let path = match given {
                Some(path) => path,
                None => {
                    let cache = match &mut cache {
                        Some(cache) => cache,
                        none => none.insert(Cache::open()?),
                    };
                    cache.program(source, say).await?
                }
            };
            found.push((source.name, path));
        }
        Ok(Self { found })
    }

    /// Checks early that the binaries exist or can be built.
    ///
    /// # Errors
    /// Fails if Go is missing or too old.
    pub async fn can_be_had() -> Result<(), HarnessError> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let cache = cache_dir()?;
        let there = |source: &ProgramSource| {
            let given = assets.as_deref().and_then(|dir| given(dir, source.name));
            given.is_some() || cache.join(source.name).is_file()
        };
        if SOURCES.iter().all(there) {
            return Ok(());
        }
        go().await
    }

    /// Path of a program.
    ///
    /// # Errors
    /// Fails for an unknown program name.
    pub fn path(&self, name: &str) -> Result<&Path, HarnessError> {
        let found = self.found.iter().find(|(known, _)| *known == name);
        let path = found.map(|(_, path)| path.as_path());
        path.ok_or_else(|| HarnessError::NoProgram {
            name: name.to_owned(),
        })
    }
}

/// Cache directory of the built programs.
///
/// # Errors
/// Fails if the module's files cannot be read.
pub fn cache_dir() -> Result<PathBuf, HarnessError> {
    let mut inputs = Fingerprint::default();
    for name in ["go.mod", "go.sum"] {
        let path = module_dir().join(name);
        inputs.add(&file("read", &path, fs::read(&path))?);
    }
    Ok(cache::dir("controlplane", &inputs))
}

fn given(assets: &Path, name: &str) -> Option<PathBuf> {
    let there = assets.join(name);
    if there.is_file() {
        return Some(there);
    }
    machine::program(name)
}

fn module_dir() -> PathBuf {
    machine::workspace().join("tests/controlplane")
}

/// The directory of built programs.
struct Cache {
    dir: PathBuf,
    /// Locked while a program is missing: one process builds, the others wait.
    lock: Option<File>,
    version: String,
}

impl Cache {
    fn open() -> Result<Self, HarnessError> {
        let path = module_dir().join("go.mod");
        let text = file("read", &path, fs::read_to_string(&path))?;
        Ok(Self {
            dir: cache_dir()?,
            lock: None,
            version: version(&text).unwrap_or("v0.0.0").to_owned(),
        })
    }

    async fn program(
        &mut self,
        source: &ProgramSource,
        say: &dyn Fn(&str),
    ) -> Result<PathBuf, HarnessError> {
        let path = self.dir.join(source.name);
        if path.is_file() {
            return Ok(path);
        }
        if self.lock.is_none() {
            let waiting = "waiting for another process to build the control plane";
            self.lock = Some(cache::lock(&self.dir, &|| say(waiting)).await?);
            go().await?;
            say("building the programs of a Kubernetes cluster with Go, once (about 5 minutes)");
        }
        // The previous lock holder may have built it.
        if !path.is_file() {
            let begun = Instant::now();
            say(&format!("building {} {}", source.name, self.version));
            let aside = self.dir.join(format!("{}.part", source.name));
            self.build(source, &aside).await?;
            file("move", &path, fs::rename(&aside, &path))?;
            let seconds = begun.elapsed().as_secs();
            say(&format!("built {} in {seconds} s", source.name));
        }
        Ok(path)
    }

    async fn build(&self, source: &ProgramSource, to: &Path) -> Result<(), HarnessError> {
        let program = format!("go build {}", source.package);
        let ran = Command::new("go")
            .args(["build", "-trimpath", "-mod=readonly", "-ldflags"])
            .arg(flags(&self.version))
            .arg("-o")
            .args([to.as_os_str(), source.package.as_ref()])
            // Required by the kubelet; the same tags for all programs share compiled packages.
            .env("CGO_ENABLED", "1")
            .current_dir(module_dir())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await;
        let output = ran.map_err(|source| HarnessError::Run {
            program: program.clone(),
            source,
        })?;
        if output.status.success() {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let last: Vec<&str> = text.lines().rev().take(15).collect();
        Err(HarnessError::Failed {
            program,
            status: output.status.to_string(),
            output: last.into_iter().rev().collect::<Vec<_>>().join("\n"),
        })
    }
}

/// Version variables: without them a program reports version 0.0.0 and rejects newer feature gates
/// and API versions.
fn flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or("0"), numbers.next().unwrap_or("0"));
    let at = "k8s.io/component-base/version";
    format!(
        "-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor} \
         -X k8s.io/client-go/pkg/version.gitVersion={version}"
    )
}

/// The Kubernetes version in the text of `go.mod`.
fn version(text: &str) -> Option<&str> {
    let words = |line: &'static str| move |text: &str| text.trim().starts_with(line);
    let mut lines = text.lines().filter(|line| {
        words("require k8s.io/kubernetes ")(line) || words("k8s.io/kubernetes ")(line)
    });
    let line = lines.next()?;
    line.split_whitespace().find(|word| word.starts_with('v'))
}

/// Fails unless a sufficiently new Go is installed.
pub(crate) async fn go() -> Result<(), HarnessError> {
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

#[cfg(test)]
mod tests {
    use super::{flags, go_version, version};

    #[test]
    fn versions_of_go() {
        assert_eq!(go_version("go1.26.8"), Some((1, 26)));
        assert_eq!(go_version("go1.27rc1"), Some((1, 27)));
        assert_eq!(go_version("devel"), None);
    }

    #[test]
    fn the_version_that_is_built() {
        let text = "module x\n\tk8s.io/kubernetes/cmd/kubectl\nrequire k8s.io/kubernetes v1.36.3\n";
        assert_eq!(version(text), Some("v1.36.3"));
        assert_eq!(
            version("require (\n\tk8s.io/kubernetes v1.9.0\n)"),
            Some("v1.9.0")
        );
        assert!(flags("v1.36.3").contains("gitMinor=36 "));
    }
}
