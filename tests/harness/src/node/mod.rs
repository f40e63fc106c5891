use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::containerd::{self, Containerd};
use crate::error::{HarnessError, file};
use crate::guard::CleanupGuard;
use crate::pki::Pki;
use crate::scratch::{self, Scratch};
use crate::{cgroup, cleanup, machine, procs, wait};

/// Requests to the node's services over gRPC.
mod ask;
/// Directories and configuration file.
mod config;
/// What distinguishes a node from others.
mod options;
/// Simulated power loss.
mod reboot;

pub use ask::SERVICES;
pub use config::{NodeDirs, shared_mount};
pub use options::NodeOptions;

/// The kubelet's default ports: of its API and its health check.
const STANDARD_PORTS: (u16, u16) = (10250, 10248);

/// A node: a private containerd and the services, below one directory. Removed completely on drop.
#[derive(Debug)]
pub struct Node {
    options: NodeOptions,
    bin_dir: PathBuf,
    child: Option<Child>,
    dirs: NodeDirs,
    ports: (u16, u16),
    pki: Pki,
    /// The container runtime.
    pub containerd: Containerd,
    guard: CleanupGuard,
    // Last field: the lock is released after everything else is dropped.
    scratch: Scratch,
}

impl Node {
    /// Creates everything but the services: directories, cgroup, containerd, configuration.
    ///
    /// # Errors
    /// Fails if a program is missing or containerd does not become ready.
    pub async fn prepare(options: NodeOptions, say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        machine::need_root()?;
        machine::architecture()?;
        let bin_dir = options.bin_dir.clone().unwrap_or_else(default_bin_dir);
        let program = bin_dir.join("polylet");
        if !program.is_file() {
            return Err(HarnessError::NotBuilt { path: program });
        }
        let mut scratch = Scratch::create()?;
        let guard = CleanupGuard::new(scratch.dir());
        if options.standard_paths {
            scratch.use_standard_paths()?;
        }
        cgroup::create(&scratch.facts().cgroup)?;
        if let Some(size) = options.image_disk {
            config::small_disk(&scratch.sub("root")?, size)?;
        }
        let containerd =
            Containerd::start(&mut scratch, options.flavour, options.masquerade, say).await?;
        let ports = if options.standard_paths {
            STANDARD_PORTS
        } else {
            (machine::free_port()?, machine::free_port()?)
        };
        let dirs = NodeDirs::create(&scratch, options.standard_paths)?;
        if let Some(size) = options.state_disk {
            config::small_disk(&dirs.state, size)?;
        }
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

    /// Prepares and starts a node, and waits until every service is serving.
    ///
    /// # Errors
    /// See [`Node::prepare`] and [`Node::up`].
    pub async fn start(options: NodeOptions) -> Result<Self, HarnessError> {
        let mut node = Self::prepare(options, &|line| eprintln!("{line}")).await?;
        let up = node.up().await;
        if up.is_err() {
            node.keep_logs();
        }
        up.map(|()| node)
    }

    /// Starts `polylet run` and waits until every service is serving.
    ///
    /// # Errors
    /// Fails with the end of its log if it exits, or on timeout.
    pub async fn up(&mut self) -> Result<(), HarnessError> {
        self.spawn()?;
        self.wait_serving().await
    }

    /// Starts `polylet run` without waiting.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub fn spawn(&mut self) -> Result<(), HarnessError> {
        let log_path = self.log();
        let log = File::options().create(true).append(true).open(&log_path);
        let log = file("open", &log_path, log)?;
        let also = file("open", &log_path, log.try_clone())?;
        let child = self
            .command()?
            .arg("run")
            .arg("--config")
            .arg(self.config())
            .envs(self.options.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(also)
            // Ctrl-C is handled by this process, which stops the node in order.
            .process_group(0)
            .spawn();
        let child = child.map_err(|source| HarnessError::Run {
            program: "polylet run".to_owned(),
            source,
        })?;
        self.child = Some(child);
        Ok(())
    }

    /// The supervisor's program, in a mount namespace of its own when it has another resolver.
    fn command(&self) -> Result<Command, HarnessError> {
        let program = self.program("polylet");
        let Some(resolv_conf) = &self.options.resolv_conf else {
            return Ok(Command::new(program));
        };
        // Mounts below the root directory still reach the runtime.
        config::shared_mount(&self.dirs.root)?;
        let script =
            "mount --make-private / && mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "unchanged", "sh", "-c", script]);
        command.arg(resolv_conf).arg(program);
        Ok(command)
    }

    /// Stops the services with SIGTERM; pods keep running. Returns the exit status.
    pub fn down(&mut self) -> Option<std::process::ExitStatus> {
        let mut child = self.child.take()?;
        machine::signal(child.id(), Signal::TERM);
        if !wait::until_blocking(Duration::from_secs(30), || !procs::alive(child.id())) {
            machine::signal(child.id(), Signal::KILL);
        }
        child.wait().ok()
    }

    /// Kills one process with SIGKILL: a service by name, or `supervisor`, which must then be
    /// restarted by [`Node::up`].
    ///
    /// # Errors
    /// Fails if the service is not running.
    pub async fn kill(&mut self, name: &str) -> Result<(), HarnessError> {
        if name == "supervisor" {
            if let Some(mut child) = self.child.take() {
                machine::signal(child.id(), Signal::KILL);
                // Already exited: only reaps it.
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

    /// Writes a static pod manifest atomically.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn put(&self, name: &str, text: &str) -> Result<(), HarnessError> {
        let (aside, path) = (self.dirs.staging.join(name), self.dirs.manifests.join(name));
        file("write", &aside, fs::write(&aside, text))?;
        file("move", &path, fs::rename(&aside, &path))
    }

    /// Removes a static pod manifest.
    ///
    /// # Errors
    /// Fails if it does not exist.
    pub fn take(&self, name: &str) -> Result<(), HarnessError> {
        let path = self.dirs.manifests.join(name);
        file("remove", &path, fs::remove_file(&path))
    }

    /// Runs `polylet` with these arguments and the node's configuration.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub async fn cli(&self, words: &[&str]) -> Result<Output, HarnessError> {
        let ran = tokio::process::Command::new(self.program("polylet"))
            .args(words)
            .arg("--config")
            .arg(self.config())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let limited = tokio::time::timeout(wait::timeout(), ran).await;
        let program = format!("polylet {}", words.join(" "));
        match limited {
            Ok(ran) => ran.map_err(|source| HarnessError::Run { program, source }),
            Err(_) => Err(HarnessError::Timeout {
                what: format!("`{program}` to exit"),
                seconds: wait::timeout().as_secs(),
                last: "still running".to_owned(),
            }),
        }
    }

    /// Stops all processes and removes all files.
    ///
    /// # Errors
    /// [`HarnessError::LeftBehind`] if something could not be removed.
    pub fn remove(mut self) -> Result<(), HarnessError> {
        self.down();
        let left = self.guard.sweep();
        if left.is_empty() {
            Ok(())
        } else {
            Err(HarnessError::Leftover { left })
        }
    }

    /// Mount points below the node's root directory, for comparison before and after a test.
    pub fn mounts(&self) -> Vec<PathBuf> {
        let mut mounts = cleanup::mounts_below(&self.dirs.root);
        // The root directory itself is a mount point where mounts would not propagate otherwise.
        mounts.retain(|at| *at != self.dirs.root);
        mounts
    }

    /// Path of a binary.
    pub fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }

    /// The node's directories.
    pub fn dirs(&self) -> &NodeDirs {
        &self.dirs
    }

    /// The scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// The parent cgroup of the pods.
    pub fn cgroup(&self) -> &str {
        &self.scratch.facts().cgroup
    }

    /// Below the machine's own root, agents make their standard parent cgroup themselves.
    fn cgroup_root(&self) -> &str {
        if self.options.standard_paths {
            "/"
        } else {
            self.cgroup()
        }
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.options.name
    }

    /// Process id of the supervisor.
    pub fn supervisor_pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Port of the node API and its health check.
    pub fn ports(&self) -> (u16, u16) {
        self.ports
    }

    /// Client certificates for the node API.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// Path of the configuration file.
    pub fn config(&self) -> PathBuf {
        self.scratch.dir().join("config.yaml")
    }

    /// Path of the services' log.
    pub fn log(&self) -> PathBuf {
        self.scratch.dir().join("polylet.log")
    }

    fn write_config(&self) -> Result<(), HarnessError> {
        let text = config::text(&self.config_input())?;
        let path = self.config();
        file("write", &path, fs::write(&path, text))
    }

    /// The merged `KubeletConfiguration`.
    pub fn kubelet_configuration(&self) -> Value {
        config::kubelet(&self.config_input())
    }

    /// Replaces the fields that are merged into `KubeletConfiguration`, from the next start on.
    ///
    /// # Errors
    /// Fails if the configuration file cannot be written.
    pub fn set_kubelet_fields(&mut self, fields: Value) -> Result<(), HarnessError> {
        self.options.kubelet = fields;
        self.write_config()
    }

    fn config_input(&self) -> config::Input<'_> {
        config::Input {
            options: &self.options,
            dirs: &self.dirs,
            bin_dir: &self.bin_dir,
            ports: self.ports,
            client_ca: self.pki.authority(),
            endpoint: self.containerd.endpoint(),
            cgroup_root: self.cgroup_root(),
        }
    }

    /// After a failure, saves the logs before the removal, and prints the end of the services' one. A
    /// panic does so by itself.
    pub fn keep_logs(&self) {
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

/// POLYLET_TEST_BIN_DIR, else the shipped binaries, else the release build, else the debug build.
pub fn default_bin_dir() -> PathBuf {
    if let Some(dir) = std::env::var_os("POLYLET_TEST_BIN_DIR") {
        return PathBuf::from(dir);
    }
    let target = machine::target_dir();
    let built = ["release/node", "release", "debug"].map(|profile| target.join(profile));
    let found = built.iter().find(|dir| dir.join("polylet").is_file());
    found.unwrap_or(&built[0]).clone()
}
