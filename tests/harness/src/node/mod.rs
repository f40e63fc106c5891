use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::containerd::{self, Containerd, Flavour};
use crate::error::{HarnessError, file};
use crate::guard::Guard;
use crate::pki::Pki;
use crate::scratch::{self, Scratch};
use crate::{cgroup, cleanup, machine, procs, wait};

/// What the node says, over gRPC.
mod ask;
/// Its configuration file.
mod config;
/// A loss of power.
mod reboot;

pub use ask::SERVICES;
pub use config::Dirs;

/// How a node is to be.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its name; static pods carry it at the end of theirs.
    pub name: String,
    /// Which containerd.
    pub flavour: Flavour,
    /// Where the programs are; [`default_bin_dir`] when not given.
    pub bin_dir: Option<PathBuf>,
    /// Fields to set in the `KubeletConfiguration`.
    pub kubelet: Value,
    /// Fields to set in the `PolyletConfiguration`.
    pub polylet: Value,
    /// Environment variables for the node.
    pub env: Vec<(String, String)>,
    /// A disk of its own for images and containers, of so many MiB; in memory, so a small one.
    pub image_disk: Option<u32>,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: "node".to_owned(),
            flavour: Flavour::from_env(),
            bin_dir: None,
            kubelet: Value::Null,
            polylet: Value::Null,
            env: Vec::new(),
            image_disk: None,
        }
    }
}

/// A node: a containerd of its own and the services, with everything below one directory. When it
/// is dropped, nothing of it stays.
#[derive(Debug)]
pub struct Node {
    options: NodeOptions,
    bin_dir: PathBuf,
    child: Option<Child>,
    dirs: Dirs,
    ports: (u16, u16),
    pki: Pki,
    /// Its container runtime.
    pub containerd: Containerd,
    guard: Guard,
    // Last: the lock goes when all else is gone.
    scratch: Scratch,
}

impl Node {
    /// Everything but the services: directories, cgroup, containerd, configuration.
    ///
    /// # Errors
    /// When something is missing, or a part does not come up.
    pub async fn prepare(options: NodeOptions, say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        machine::need_root()?;
        machine::architecture()?;
        let bin_dir = options.bin_dir.clone().unwrap_or_else(default_bin_dir);
        let program = bin_dir.join("polylet");
        if !program.is_file() {
            return Err(HarnessError::NotBuilt { path: program });
        }
        let mut scratch = Scratch::create()?;
        let guard = Guard::new(scratch.dir());
        cgroup::create(&scratch.facts().cgroup)?;
        if let Some(size) = options.image_disk {
            config::image_disk(&scratch.sub("root")?, size)?;
        }
        let containerd = Containerd::start(&mut scratch, options.flavour, say).await?;
        let ports = (machine::free_port()?, machine::free_port()?);
        let dirs = Dirs::create(&scratch)?;
        let pki = Pki::create(&scratch.sub("pki")?)?;
        let node = Self {
            options,
            bin_dir,
            child: None,
            dirs,
            ports,
            pki,
            containerd,
            guard,
            scratch,
        };
        node.write_config()?;
        Ok(node)
    }

    /// A node that runs: prepared, started, every service serving.
    ///
    /// # Errors
    /// As [`Node::prepare`] and [`Node::up`].
    pub async fn start(options: NodeOptions) -> Result<Self, HarnessError> {
        let mut node = Self::prepare(options, &|line| eprintln!("{line}")).await?;
        let up = node.up().await;
        if up.is_err() {
            node.keep_logs();
        }
        up.map(|()| node)
    }

    /// Starts `polylet run` and waits until every service serves.
    ///
    /// # Errors
    /// When it ends, with the end of its log, or patience does.
    pub async fn up(&mut self) -> Result<(), HarnessError> {
        self.spawn()?;
        self.wait_serving().await
    }

    /// Starts `polylet run` and does not wait.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub fn spawn(&mut self) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = File::options().create(true).append(true).open(&log_path);
        let log = file("open", &log_path, log)?;
        let also = file("open", &log_path, log.try_clone())?;
        let child = Command::new(self.program("polylet"))
            .arg("run")
            .arg("--config")
            .arg(self.config())
            .envs(self.options.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // A Ctrl-C is for us: we end the node in order.
            .process_group(0)
            .spawn();
        let child = child.map_err(|source| HarnessError::Run {
            program: "polylet run".to_owned(),
            source,
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// Ends the services in order, as SIGTERM does; pods go on running. Gives the exit status.
    pub fn down(&mut self) -> Option<std::process::ExitStatus> {
        let mut child = self.child.take()?;
        machine::signal(child.id(), Signal::TERM);
        if !wait::until_blocking(Duration::from_secs(30), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        child.wait().ok()
    }

    /// Kills one process with SIGKILL: a service by its name, or `supervisor`, which then has to
    /// be started again by [`Node::up`].
    ///
    /// # Errors
    /// When the service has no process.
    pub async fn kill(&mut self, name: &str) -> Result<(), HarnessError> {
        if name == "supervisor" {
            if let Some(mut child) = self.child.take() {
                machine::signal(child.id(), Signal::KILL);
                // It has ended: this only takes its record away.
                let _ = child.wait();
            }
            return Ok(());
        }
        let services = self.services().await?;
        let service = services
            .iter()
            .find(|service| service.name == name && service.pid != 0);
        let pid = service
            .ok_or(HarnessError::NoService {
                name: name.to_owned(),
            })?
            .pid;
        machine::signal(pid, Signal::KILL);
        Ok(())
    }

    /// Puts a manifest into the directory, whole or not at all.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, name: &str, text: &str) -> Result<(), HarnessError> {
        let (aside, path) = (self.dirs.aside.join(name), self.dirs.manifests.join(name));
        file("write", &aside, fs::write(&aside, text))?;
        file("move", &path, fs::rename(&aside, &path))
    }

    /// Takes a manifest out of the directory.
    ///
    /// # Errors
    /// When it is not there.
    pub fn take(&self, name: &str) -> Result<(), HarnessError> {
        let path = self.dirs.manifests.join(name);
        file("remove", &path, fs::remove_file(&path))
    }

    /// Runs `polylet` with these words and the node's configuration.
    ///
    /// # Errors
    /// When the program cannot be run.
    pub async fn cli(&self, words: &[&str]) -> Result<Output, HarnessError> {
        let ran = tokio::process::Command::new(self.program("polylet"))
            .args(words)
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let limited = tokio::time::timeout(wait::patience(), ran).await;
        let program = format!("polylet {}", words.join(" "));
        match limited {
            Ok(ran) => ran.map_err(|source| HarnessError::Run { program, source }),
            Err(_) => Err(HarnessError::Patience {
                what: format!("the end of `{program}`"),
                seconds: wait::patience().as_secs(),
                last: "still running".to_owned(),
            }),
        }
    }

    /// Ends everything and removes it.
    ///
    /// # Errors
    /// [`HarnessError::LeftBehind`] when something could not be removed.
    pub fn remove(mut self) -> Result<(), HarnessError> {
        self.down();
        let left = self.guard.sweep();
        if left.is_empty() {
            Ok(())
        } else {
            Err(HarnessError::LeftBehind { left })
        }
    }

    /// What exists of this node outside its containerd's directories: for comparing before and
    /// after.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let mut mounts = cleanup::mounts_below(&self.dirs.root);
        // The root directory itself is one where mounts would not propagate otherwise.
        mounts.retain(|at| *at != self.dirs.root);
        mounts
    }

    /// One of its programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    /// Its directories.
    pub fn dirs(&self) -> &Dirs {
        &self.dirs
    }

    /// The directory that holds all of it.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// The cgroup its pods are below.
    pub fn cgroup(&self) -> &str {
        &self.scratch.facts().cgroup
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// The supervisor's process.
    pub fn supervisor_pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Port of the node API, and of its health check.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Certificates for asking its API.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Its configuration file.
    pub fn config(&self) -> PathBuf {
        self.scratch.dir().join("config.yaml")
    }

    /// What the services write to their standard error.
    pub fn log(&self) -> PathBuf {
        self.scratch.dir().join("polylet.log")
    }

    fn write_config(&self) -> Result<(), HarnessError> {
        let text = config::text(&self.config_input())?;
        let path = self.config();
        file("write", &path, fs::write(&path, text))
    }

    /// Its `KubeletConfiguration`.
    pub fn kubelet_configuration(&self) -> Value {
        config::kubelet(&self.config_input())
    }

    fn config_input(&self) -> config::Input<'_> {
        config::Input {
            options: &self.options,
            dirs: &self.dirs,
            bin_dir: &self.bin_dir,
            ports: self.ports,
            client_ca: self.pki.authority(),
            endpoint: self.containerd.endpoint(),
            cgroup: self.cgroup(),
        }
    }

    /// A failed test keeps its logs: the rest goes.
    fn keep_logs(&self) {
        let logs = [self.log(), self.containerd.log(), self.config()];
        scratch::keep_logs(&self.scratch.facts().id, &logs);
        eprintln!("{}", containerd::tail(&self.log(), 25));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        if std::env::var_os("POLYLET_TEST_KEEP").is_none() {
            self.down();
        }
    }
}

/// POLYLET_TEST_BIN_DIR, else the programs as they are shipped, else the release build, else the
/// debug build.
pub fn default_bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("POLYLET_TEST_BIN_DIR") {
        return PathBuf::from(dir);
    }
    let target = machine::target_dir();
    let built = ["release/node", "release", "debug"].map(|profile| target.join(profile));
    let found = built.iter().find(|dir| dir.join("polylet").is_file());
    found.unwrap_or(&built[0]).clone()
}
