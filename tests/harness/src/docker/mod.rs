use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{HarnessError, file};
use crate::wait::{Poll, until};
use crate::{Node, containerd, machine, procs, wait};

/// Programs of the trace viewer and the collector.
mod observability;
/// Docker's programs and a base image.
mod programs;

pub use observability::ObservabilityPrograms;
use programs::DockerPrograms;

/// The name of the base image that `compose/Dockerfile` starts from.
pub const BASE_IMAGE: &str = "debian:trixie-slim";

/// A private Docker engine beside a node's containerd, with a containerd of its own and without a bridge.
/// Stopped on drop, with its containers.
#[derive(Debug)]
pub struct DockerEngine {
    dir: PathBuf,
    programs: DockerPrograms,
    child: Option<Child>,
}

impl DockerEngine {
    /// Starts the engine below the node's directory and imports the base image. The first run downloads
    /// Debian's packages and builds the base image of them.
    ///
    /// # Errors
    /// Fails if a program is missing or the engine does not become ready.
    pub async fn start(node: &Node, say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let programs = DockerPrograms::fetch(say)?;
        let base = programs::base_image(say)?;
        let dir = node.scratch().join("docker");
        file("make", &dir, fs::create_dir_all(&dir))?;
        let mut this = Self {
            dir,
            programs,
            child: None,
        };
        this.up(node.cgroup()).await?;
        this.docker(["import".as_ref(), base.as_os_str(), BASE_IMAGE.as_ref()])?;
        Ok(this)
    }

    async fn up(&mut self, cgroup: &str) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = file("make", &log_path, File::create(&log_path))?;
        let also = file("open", &log_path, log.try_clone())?;
        let config = self.dir.join("daemon.json");
        file("write", &config, fs::write(&config, "{}"))?;
        let dir = self.dir.display();
        let child = Command::new(&self.programs.dockerd)
            .arg("--config-file")
            .arg(&config)
            .arg(format!("--data-root={dir}/data"))
            .arg(format!("--exec-root={dir}/exec"))
            .arg(format!("--pidfile={dir}/pid"))
            .arg(format!("--host={}", self.host()))
            .arg(format!("--cgroup-parent={cgroup}/docker"))
            .args(["--exec-opt=native.cgroupdriver=cgroupfs", "--bridge=none"])
            .args(["--iptables=false", "--ip-masq=false"])
            .env("PATH", containerd::search_path(&self.programs.dockerd))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // Ctrl-C is handled by this process.
            .process_group(0)
            .spawn();
        let child = child.map_err(|source| HarnessError::Run {
            program: "dockerd".to_owned(),
            source,
        })?;
        let child = self.child.insert(child);
        let mut ended = None;
        let (docker, host) = (&self.programs.docker, format!("unix://{dir}/docker.sock"));
        let answered = until("the Docker engine to respond", || {
            ended = child.try_wait().ok().flatten();
            let gone = ended.is_some();
            let asked = Command::new(docker)
                .args(["--host", &host, "info"])
                .output();
            async move {
                match asked {
                    Ok(output) if output.status.success() => Poll::Ready(true),
                    _ if gone => Poll::Ready(false),
                    Ok(output) => Poll::Pending(String::from_utf8_lossy(&output.stderr).into()),
                    Err(error) => Poll::Pending(error.to_string()),
                }
            }
        });
        if answered.await? {
            return Ok(());
        }
        Err(HarnessError::ExitedEarly {
            program: "dockerd",
            status: ended.map(|status| status.to_string()).unwrap_or_default(),
            log: containerd::tail(&log_path, 15),
        })
    }

    /// Runs `docker` with these arguments and returns its output.
    ///
    /// # Errors
    /// Fails if it exits with a non-zero status.
    pub fn docker<S: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String, HarnessError> {
        let mut command = Command::new(&self.programs.docker);
        command
            .args(args)
            .env("DOCKER_HOST", self.host())
            // Debian has no BuildKit of this version.
            .env("DOCKER_BUILDKIT", "0");
        output(&mut command)
    }

    /// Runs `docker compose` with the files and arguments in an environment.
    ///
    /// # Errors
    /// Fails if it exits with a non-zero status.
    pub fn compose(
        &self,
        files: &[PathBuf],
        environment: &[(String, String)],
        args: &[&str],
    ) -> Result<String, HarnessError> {
        let mut command = Command::new(&self.programs.compose);
        for path in files {
            command.arg("--file").arg(path);
        }
        command.args(args).env("DOCKER_HOST", self.host());
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        output(&mut command)
    }

    /// Builds an image of one static program.
    ///
    /// # Errors
    /// Fails if a file cannot be written or the build fails.
    pub fn image_of_program(&self, name: &str, program: &Path) -> Result<(), HarnessError> {
        let context = self.dir.join("image");
        let _ = fs::remove_dir_all(&context);
        file("make", &context, fs::create_dir_all(&context))?;
        let copy = context.join("program");
        file("copy", &copy, fs::copy(program, &copy))?;
        let recipe = "FROM scratch\nCOPY program /program\nUSER 10001\nENTRYPOINT [\"/program\"]\n";
        let path = context.join("Dockerfile");
        file("write", &path, fs::write(&path, recipe))?;
        let args = ["build", "--quiet", "--tag", name].map(OsStr::new);
        self.docker(args.into_iter().chain([context.as_os_str()]))?;
        Ok(())
    }

    /// Path of the engine's log.
    pub fn log(&self) -> PathBuf {
        self.dir.join("docker.log")
    }

    fn host(&self) -> String {
        format!("unix://{}/docker.sock", self.dir.display())
    }
}

impl Drop for DockerEngine {
    fn drop(&mut self) {
        let Some(mut child) = self.child.take() else {
            return;
        };
        // It stops its containers first.
        machine::signal(child.id(), Signal::TERM);
        if !wait::until_blocking(Duration::from_secs(40), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        let _ = child.wait();
    }
}

fn output(command: &mut Command) -> Result<String, HarnessError> {
    let words = command.get_args().map(|arg| arg.to_string_lossy());
    let words: Vec<_> = words.collect();
    let program = format!(
        "{} {}",
        command.get_program().to_string_lossy(),
        words.join(" ")
    );
    let ran = command.stdin(Stdio::null()).output();
    let output = ran.map_err(|source| HarnessError::Run {
        program: program.clone(),
        source,
    })?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(text);
    }
    let mut all = String::from_utf8_lossy(&output.stderr).into_owned();
    all.push_str(&text);
    let lines: Vec<&str> = all.lines().rev().take(20).collect();
    Err(HarnessError::Failed {
        program,
        status: output.status.to_string(),
        output: lines.into_iter().rev().collect::<Vec<_>>().join("\n"),
    })
}
