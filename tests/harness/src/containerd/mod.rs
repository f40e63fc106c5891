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
use crate::wait::{Look, until};
use crate::{image, machine, procs, wait};

/// Configuration files of both generations.
mod config;
/// Fetching containerd 2.x.
mod v2;

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// The one on this machine, else Debian's package.
    Debian,
    /// 2.x, with container events.
    V2,
}

impl Flavour {
    /// From POLYLET_TEST_CONTAINERD (`debian` or `v2`); `debian` when unset.
    pub fn from_env() -> Self {
        match std::env::var("POLYLET_TEST_CONTAINERD").as_deref() {
            Ok("v2") => Self::V2,
            _ => Self::Debian,
        }
    }

    /// The program, fetched if it is not there yet.
    ///
    /// # Errors
    /// When it is missing and cannot be had.
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

/// A containerd that belongs to one run: own root, state, socket and bridge network.
#[derive(Debug)]
pub struct Containerd {
    dir: PathBuf,
    program: PathBuf,
    child: Option<Child>,
    cri: Cri,
    /// Its network.
    pub network: Network,
}

impl Containerd {
    /// Starts it, waits until it answers, and gives it the test and pause images.
    ///
    /// # Errors
    /// When something is missing or it does not come up.
    pub async fn start(
        scratch: &mut Scratch,
        flavour: Flavour,
        say: &dyn Fn(&str),
    ) -> Result<Self, HarnessError> {
        let program = flavour.program(say)?;
        scratch.note_containerd(&program)?;
        let dir = scratch.dir().to_owned();
        let (conf, data) = (scratch.sub("cni")?, scratch.sub("ipam")?);
        let bridge = &scratch.facts().bridge;
        let network = Network::create(bridge, scratch.seed(), &conf, &data)?;
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
            network,
        };
        this.up().await?;
        for archive in image::write_all(&this.dir)? {
            this.import(&archive)?;
        }
        this.shows_images().await?;
        Ok(this)
    }

    /// The interface learns of an import by an event, a moment after the import has ended.
    async fn shows_images(&self) -> Result<(), HarnessError> {
        until("the imported images in the runtime's list", || async {
            let images = match self.cri.images().await {
                Ok(images) => images,
                Err(error) => return Look::NotYet(crate::error::report(&error)),
            };
            let names: Vec<String> = images.into_iter().flat_map(|i| i.repo_tags).collect();
            if [image::TEST, image::PAUSE]
                .iter()
                .all(|wanted| names.iter().any(|n| n == wanted))
            {
                Look::Done(())
            } else {
                Look::NotYet(format!("only {names:?}"))
            }
        })
        .await
    }

    /// Starts the process and waits until it answers.
    ///
    /// # Errors
    /// When it ends at once, with the end of its log, or stays silent.
    pub async fn up(&mut self) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = File::options().create(true).append(true).open(&log_path);
        let log = file("open", &log_path, log)?;
        let also = file("open", &log_path, log.try_clone())?;
        let child = Command::new(&self.program)
            .args(["--config".as_ref(), config_file(&self.dir).as_os_str()])
            .env("PATH", search_path(&self.program))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // Not in our group: a Ctrl-C is for us, and we end it in order.
            .process_group(0)
            .spawn()
            .map_err(|source| HarnessError::Run {
                program: "containerd".to_owned(),
                source,
            })?;
        let child = self.child.insert(child);
        let cri = &self.cri;
        let mut ended = None;
        let answered = until("an answer from containerd", || {
            ended = child.try_wait().ok().flatten();
            let gone = ended.is_some();
            async move {
                match cri.version().await {
                    Ok(version) => Look::Done(Some(version)),
                    Err(_) if gone => Look::Done(None),
                    Err(error) => Look::NotYet(crate::error::report(&error)),
                }
            }
        });
        if answered.await?.is_some() {
            return Ok(());
        }
        Err(HarnessError::Ended {
            program: "containerd",
            status: ended.map(|status| status.to_string()).unwrap_or_default(),
            log: tail(&log_path, 15),
        })
    }

    /// Ends the process; containers go on running. With `hard`, by SIGKILL.
    pub fn down(&mut self, hard: bool) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        machine::signal(child.id(), if hard { Signal::KILL } else { Signal::TERM });
        if !wait::until_blocking(Duration::from_secs(10), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        // It has ended: this only takes its record away.
        let _ = child.wait();
    }

    /// Down and up again.
    ///
    /// # Errors
    /// As [`Containerd::up`].
    pub async fn restart(&mut self) -> Result<(), HarnessError> {
        self.down(false);
        self.up().await
    }

    /// Gives it the images of an archive.
    ///
    /// # Errors
    /// When the archive is refused.
    pub fn import(&self, archive: &Path) -> Result<(), HarnessError> {
        self.ctr(&["images", "import", &archive.display().to_string()])?;
        Ok(())
    }

    /// Takes an image away, past the node.
    ///
    /// # Errors
    /// When it is not there.
    pub fn remove_image(&self, reference: &str) -> Result<(), HarnessError> {
        self.ctr(&["images", "rm", "--sync", reference])?;
        Ok(())
    }

    /// Runs a command in a running container, past the node, and gives its output.
    ///
    /// # Errors
    /// When it fails.
    pub fn exec(&self, container: &str, command: &[&str]) -> Result<String, HarnessError> {
        let words = ["tasks", "exec", "--exec-id", "harness", container];
        self.ctr(&[&words, command].concat())
    }

    /// Kills the first process of a container or a sandbox, past the node.
    ///
    /// # Errors
    /// When there is none.
    pub fn kill(&self, id: &str) -> Result<(), HarnessError> {
        self.ctr(&["tasks", "kill", "-s", "SIGKILL", id])?;
        Ok(())
    }

    fn ctr(&self, words: &[&str]) -> Result<String, HarnessError> {
        self.ctr_in("k8s.io", words)
    }

    /// Runs its command-line tool in a namespace: what is in another than `k8s.io` no node sees.
    pub(crate) fn ctr_in(&self, namespace: &str, words: &[&str]) -> Result<String, HarnessError> {
        let socket = socket(&self.dir).display().to_string();
        let own = ["-a", &socket, "-n", namespace];
        machine::run(&self.program.with_file_name("ctr"), &[&own, words].concat())
    }

    /// Where it looks for how to reach a registry by the name in an image reference.
    pub fn registries(&self) -> PathBuf {
        self.dir.join("certs.d")
    }

    /// A client of it.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// What a node's configuration calls it.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", socket(&self.dir).display())
    }

    /// Its log file.
    pub fn log(&self) -> PathBuf {
        self.dir.join("containerd.log")
    }

    /// What it says of itself, for people.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn version(&self) -> Result<String, HarnessError> {
        self.cri.version().await
    }
}

/// The socket of the containerd of the run in `dir`.
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

/// `containerd github.com/containerd/containerd/v2 2.1.9 …` or `… v1.7.24 …`.
fn major(program: &Path) -> Result<u32, HarnessError> {
    let text = machine::run(program, &["--version"])?;
    Ok(major_of(&text))
}

fn major_of(text: &str) -> u32 {
    let version = text.split_whitespace().nth(2).unwrap_or_default();
    let digits = version.trim_start_matches('v').split('.').next();
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(1)
}

/// The last lines of a log file.
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
