use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::cri::Cri;
use crate::error::{HarnessError, file};
use crate::network::Network;
use crate::scratch::Scratch;
use crate::wait::{Poll, until};
use crate::{image, machine, procs, wait};

/// Configuration files for containerd 1.x and 2.x.
mod config;
/// Download of containerd 2.x.
pub(crate) mod v2;

/// The containerd version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The installed one, else Debian's package.
    Debian,
    /// 2.x, which supports container events.
    V2,
}

impl Flavour {
    /// Reads POLYLET_TEST_CONTAINERD (`debian` or `v2`); `debian` if unset.
    pub fn from_env() -> Self {
        match std::env::var("POLYLET_TEST_CONTAINERD").as_deref() {
            Ok("v2") => Self::V2,
            _ => Self::Debian,
        }
    }

    /// Path of the binary, downloaded if necessary.
    ///
    /// # Errors
    /// Fails if it is missing and cannot be downloaded.
    pub fn program(self, say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
        match self {
            Self::Debian => machine::program("containerd").ok_or(HarnessError::StillMissing {
                program: "containerd".to_owned(),
                package: "containerd".to_owned(),
            }),
            Self::V2 => v2::fetch(say),
        }
    }
}

/// The private containerd of one run, with its own root, state, socket and bridge network.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
    program: PathBuf,
    child: Option<Child>,
    cri: Cri,
    /// Environment variables of its process, from the next start on.
    pub env: Vec<(String, String)>,
    /// The bridge network.
    pub network: Network,
}

impl Containerd {
    /// Starts containerd, waits until it responds, and imports the test and pause images. See
    /// [`Network::create`] for `masquerade`.
    ///
    /// # Errors
    /// Fails if a program is missing or containerd does not become ready.
    pub async fn start(
        scratch: &mut Scratch,
        flavour: Flavour,
        masquerade: bool,
        say: &dyn Fn(&str),
    ) -> Result<Self, HarnessError> {
        let program = flavour.program(say)?;
        scratch.note_containerd(&program)?;
        let dir = scratch.dir().to_owned();
        let (conf, data) = (scratch.sub("cni")?, scratch.sub("ipam")?);
        let bridge = &scratch.facts().bridge;
        let network = Network::create(bridge, scratch.seed(), masquerade, &conf, &data)?;
        let plugins = machine::cni_plugins().ok_or(HarnessError::StillMissing {
            program: "CNI plugins (bridge, host-local, portmap, loopback)".to_owned(),
            package: "containernetworking-plugins".to_owned(),
        })?;
        let text = config::text(&dir, major(&program)?, &plugins);
        let path = config_file(&dir);
        file("write", &path, fs::write(&path, text))?;
        let cri = Cri::new(&socket(&dir))?;
        let mut this = Self {
            dir,
            program,
            child: None,
            cri,
            env: Vec::new(),
            network,
        };
        this.up().await?;
        for archive in image::write_all(&this.dir)? {
            this.import(&archive)?;
        }
        this.shows_images().await?;
        Ok(this)
    }

    /// The CRI plugin sees imported images with a delay, through an event.
    async fn shows_images(&self) -> Result<(), HarnessError> {
        until("the imported images in the runtime's list", || async {
            let images = match self.cri.images().await {
                Ok(images) => images,
                Err(error) => return Poll::Pending(crate::error::report(&error)),
            };
            let names: Vec<String> = images.into_iter().flat_map(|i| i.repo_tags).collect();
            if [image::TEST, image::PAUSE]
                .iter()
                .all(|wanted| names.iter().any(|n| n == wanted))
            {
                Poll::Ready(())
            } else {
                Poll::Pending(format!("only {names:?}"))
            }
        })
        .await
    }

    /// Starts the process and waits until it responds.
    ///
    /// # Errors
    /// Fails with the end of its log if it exits, or on timeout.
    pub async fn up(&mut self) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = File::options().create(true).append(true).open(&log_path);
        let log = file("open", &log_path, log)?;
        let also = file("open", &log_path, log.try_clone())?;
        let child = Command::new(&self.program)
            .args(["--config".as_ref(), config_file(&self.dir).as_os_str()])
            .env("PATH", search_path(&self.program))
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // Own process group: Ctrl-C is handled by this process, which stops containerd in
            // order.
            .process_group(0)
            .spawn()
            .map_err(|source| HarnessError::Run {
                program: "containerd".to_owned(),
                source,
            })?;
        let child = self.child.insert(child);
        let cri = &self.cri;
        let mut ended = None;
        let answered = until("containerd to respond", || {
            ended = child.try_wait().ok().flatten();
            let gone = ended.is_some();
            async move {
                match cri.version().await {
                    Ok(version) => Poll::Ready(Some(version)),
                    Err(_) if gone => Poll::Ready(None),
                    Err(error) => Poll::Pending(crate::error::report(&error)),
                }
            }
        });
        if answered.await?.is_some() {
            return Ok(());
        }
        Err(HarnessError::ExitedEarly {
            program: "containerd",
            status: ended.map(|status| status.to_string()).unwrap_or_default(),
            log: tail(&log_path, 15),
        })
    }

    /// Stops the process; containers keep running. `hard` sends SIGKILL.
    pub fn down(&mut self, hard: bool) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        machine::signal(child.id(), if hard { Signal::KILL } else { Signal::TERM });
        if !wait::until_blocking(Duration::from_secs(10), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        // Already exited: only reaps it.
        let _ = child.wait();
    }

    /// Restarts containerd.
    ///
    /// # Errors
    /// See [`Containerd::up`].
    pub async fn restart(&mut self) -> Result<(), HarnessError> {
        self.down(false);
        self.up().await
    }

    /// Imports the images of an archive.
    ///
    /// # Errors
    /// Fails if the import fails.
    pub fn import(&self, archive: &Path) -> Result<(), HarnessError> {
        self.ctr(&["images", "import", &archive.display().to_string()])?;
        Ok(())
    }

    /// Removes an image without the node's involvement.
    ///
    /// # Errors
    /// Fails if the image does not exist.
    pub fn remove_image(&self, reference: &str) -> Result<(), HarnessError> {
        self.ctr(&["images", "rm", "--sync", reference])?;
        Ok(())
    }

    /// Runs a command in a running container without the node's involvement and returns its
    /// standard output.
    ///
    /// # Errors
    /// Fails if it cannot be run or exits with a non-zero status.
    pub async fn exec(&self, container: &str, command: &[&str]) -> Result<String, HarnessError> {
        self.cri.exec(container, command).await
    }

    /// Kills the main process of a container or sandbox without the node's involvement.
    ///
    /// # Errors
    /// Fails if there is none.
    pub fn kill(&self, id: &str) -> Result<(), HarnessError> {
        self.ctr(&["tasks", "kill", "-s", "SIGKILL", id])?;
        Ok(())
    }

    /// Starts a task of an exited container without the node's involvement, of which the CRI does not know:
    /// what a start leaves that is given up at the wrong moment.
    ///
    /// # Errors
    /// Fails if the container has one, or it cannot be started.
    pub fn start_unknown_task(&self, id: &str) -> Result<(), HarnessError> {
        self.ctr(&["tasks", "start", "--detach", "--null-io", id])?;
        Ok(())
    }

    /// The ids of the containers that have a task.
    ///
    /// # Errors
    /// Fails if containerd does not respond.
    pub fn tasks(&self) -> Result<Vec<String>, HarnessError> {
        let listed = self.ctr(&["tasks", "list", "--quiet"])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    fn ctr(&self, words: &[&str]) -> Result<String, HarnessError> {
        self.ctr_in("k8s.io", words)
    }

    /// Runs `ctr` in a namespace; namespaces other than `k8s.io` are invisible to the node.
    pub(crate) fn ctr_in(&self, namespace: &str, words: &[&str]) -> Result<String, HarnessError> {
        let socket = socket(&self.dir).display().to_string();
        let own = ["-a", &socket, "-n", namespace];
        machine::run(&self.program.with_file_name("ctr"), &[&own, words].concat())
    }

    /// Directory of the registry host configuration (`config_path`).
    pub fn registries(&self) -> PathBuf {
        self.dir.join("certs.d")
    }

    /// A CRI client.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// The value of `containerRuntimeEndpoint`.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", socket(&self.dir).display())
    }

    /// Path of its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// Human-readable name and version.
    ///
    /// # Errors
    /// Fails if it does not respond.
    pub async fn version(&self) -> Result<String, HarnessError> {
        self.cri.version().await
    }
}

/// Path of the containerd socket of the run in `dir`.
pub fn socket(dir: &Path) -> PathBuf {
    dir.join("containerd.sock")
}

pub(crate) fn config_file(dir: &Path) -> PathBuf {
    dir.join("containerd.toml")
}

/// PATH of a containerd: its own shim first, then the system's runc and mount helpers.
pub(crate) fn search_path(program: &Path) -> String {
    let own = program
        .parent()
        .unwrap_or(Path::new("/usr/bin"))
        .display()
        .to_string();
    format!("{own}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
}

/// Parses `containerd github.com/containerd/containerd/v2 2.1.9 …` or `… v1.7.24 …`.
fn major(program: &Path) -> Result<u32, HarnessError> {
    let text = machine::run(program, &["--version"])?;
    Ok(major_of(&text))
}

fn major_of(text: &str) -> u32 {
    let version = text.split_whitespace().nth(2).unwrap_or_default();
    let digits = version.trim_start_matches('v').split('.').next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
}

/// Last lines of a log file.
pub fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::major_of;

    #[test]
    fn versions_of_all_generations() {
        assert_eq!(
            major_of("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20"),
            1
        );
        assert_eq!(major_of("containerd containerd.io v2.1.4 75cb"), 2);
        assert_eq!(
            major_of("containerd github.com/containerd/containerd/v2 2.1.9+unknown "),
            2
        );
    }
}
