use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use polylet_harness::error::file;
use polylet_harness::{HarnessError, machine};
use rustix::process::Signal;
use tokio::net::UnixStream;

use crate::agent;
use crate::error::VmError;

/// Environment variable that selects QEMU's accelerator: `tcg` (default) or `kvm`. Emulation works
/// everywhere; KVM inside of some virtual machines exists and hangs.
const ACCELERATOR: &str = "POLYLET_VM_ACCEL";

/// Time until QEMU has created its sockets.
const START_LIMIT: Duration = Duration::from_secs(30);

/// A kernel that panics reboots, which the tests notice. Mitigations of processors' faults and waits
/// for quiescent states cost an emulated processor most of a boot; each character of the console
/// interrupts it.
const KERNEL_PARAMETERS: &str = "root=/dev/vda rw console=ttyS0 net.ifnames=0 panic=-1 loglevel=4 \
    mitigations=off rcupdate.rcu_expedited=1 \
    systemd.show_status=no systemd.log_target=console systemd.log_level=warning";

/// The hardware of a machine.
#[derive(Debug, Clone)]
pub struct Hardware {
    /// Number of processors.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory: u32,
    /// A port of this machine's loopback address that leads to the node API's.
    pub node_api: Option<u16>,
    /// The same for an API server in the machine, port 6443; other machines reach it at
    /// [`HOST`](crate::HOST).
    pub api_server: Option<u16>,
}

impl Default for Hardware {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory: 2048,
            node_api: None,
            api_server: None,
        }
    }
}

/// Files of a machine: what it boots from, and where it writes.
#[derive(Debug, Clone)]
pub(crate) struct MachineFiles {
    /// The command that runs QEMU.
    pub(crate) qemu: Vec<String>,
    pub(crate) kernel: PathBuf,
    pub(crate) initrd: PathBuf,
    /// Socket of the disk's NBD server.
    pub(crate) disk: PathBuf,
    /// Image of the read-only disk with the programs.
    pub(crate) programs: PathBuf,
    /// Directory of sockets and logs.
    pub(crate) dir: PathBuf,
}

impl MachineFiles {
    fn agent_socket(&self) -> PathBuf {
        self.dir.join("agent.sock")
    }

    /// The machine's console: kernel and systemd.
    pub(crate) fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// What the services write, as they write it.
    pub(crate) fn service_log(&self) -> PathBuf {
        self.dir.join("services.log")
    }

    fn output(&self) -> PathBuf {
        self.dir.join("qemu.log")
    }
}

/// A running QEMU, killed with this process.
#[derive(Debug)]
pub(crate) struct Qemu {
    child: Child,
    files: MachineFiles,
}

impl Qemu {
    /// Starts QEMU.
    pub(crate) fn start(files: &MachineFiles, hardware: &Hardware) -> Result<Self, VmError> {
        let socket = files.agent_socket();
        // Left by the previous boot, if any.
        let _ = fs::remove_file(&socket);
        let path = files.output();
        let opened = File::options().create(true).append(true).open(&path);
        let output = file("open", &path, opened)?;
        let also = file("open", &path, output.try_clone())?;
        // The kernel kills it when the thread that started it ends, even by SIGKILL. An emulated
        // processor never rests for long: the control plane beside it goes first.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "nice", "-n", "10"])
            .args(&files.qemu)
            .args(arguments(files, hardware, &socket))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(also)
            .process_group(0)
            .spawn();
        let child = child.map_err(|source| HarnessError::Run {
            program: "QEMU".to_owned(),
            source,
        })?;
        Ok(Self {
            child,
            files: files.clone(),
        })
    }

    /// Connects to the agent's port as soon as QEMU listens; the agent answers when it has started.
    pub(crate) async fn connect(&mut self) -> Result<UnixStream, VmError> {
        let begun = Instant::now();
        loop {
            if let Ok(stream) = UnixStream::connect(self.files.agent_socket()).await {
                return Ok(stream);
            }
            if let Some(status) = self.exit_status() {
                return Err(self.exited(&status));
            }
            if begun.elapsed() > START_LIMIT {
                return Err(self.exited("no socket"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The exit status of a QEMU that has ended by itself.
    pub(crate) fn exit_status(&mut self) -> Option<String> {
        let status = self.child.try_wait().ok().flatten()?;
        Some(status.to_string())
    }

    pub(crate) fn exited(&self, status: &str) -> VmError {
        VmError::QemuExited {
            status: status.to_owned(),
            output: tail(&self.files.output(), 20),
        }
    }

    /// Waits until the machine has switched itself off.
    pub(crate) async fn ended(&mut self, limit: Duration) -> bool {
        let begun = Instant::now();
        while self.exit_status().is_none() {
            if begun.elapsed() > limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        true
    }

    /// Kills the machine at once.
    pub(crate) fn kill(&mut self) {
        machine::signal(self.child.id(), Signal::KILL);
        // Reaps the process.
        let _ = self.child.wait();
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        self.kill();
    }
}

fn arguments(files: &MachineFiles, hardware: &Hardware, agent_socket: &Path) -> Vec<String> {
    let accelerator = std::env::var(ACCELERATOR).unwrap_or_else(|_| "tcg".to_owned());
    let (machine, cpu) = match accelerator.as_str() {
        "kvm" => ("q35,accel=kvm".to_owned(), "host"),
        // A fifth level of page tables would only make each of its walks, which are emulated, longer.
        other => (format!("q35,accel={other}"), "max,la57=off"),
    };
    let disk = files.disk.display();
    let programs = files.programs.display();
    let port = agent::PORT;
    let words = [
        "-machine",
        &machine,
        "-cpu",
        cpu,
        "-smp",
        &hardware.cpus.to_string(),
        "-m",
        &hardware.memory.to_string(),
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-rtc",
        "base=utc",
        "-kernel",
        &files.kernel.display().to_string(),
        "-initrd",
        &files.initrd.display().to_string(),
        "-append",
        KERNEL_PARAMETERS,
        // The guest sees a disk with a write cache, and its flushes reach the server.
        "-blockdev",
        &format!("driver=nbd,node-name=disk,server.type=unix,server.path={disk},export=disk"),
        "-device",
        "virtio-blk-pci,drive=disk,write-cache=on",
        "-drive",
        &format!("file={programs},format=raw,if=none,id=programs,readonly=on"),
        "-device",
        "virtio-blk-pci,drive=programs",
        "-netdev",
        &network(hardware),
        "-device",
        "virtio-net-pci,netdev=net",
        "-device",
        "virtio-rng-pci",
        "-chardev",
        &format!(
            "file,id=console,path={},append=on",
            files.console().display()
        ),
        "-serial",
        "chardev:console",
        "-device",
        "virtio-serial-pci",
        "-chardev",
        &format!(
            "socket,id=agent,path={},server=on,wait=off",
            agent_socket.display()
        ),
        "-device",
        &format!("virtserialport,chardev=agent,name={port}"),
        "-chardev",
        &format!(
            "file,id=log,path={},append=on",
            files.service_log().display()
        ),
        "-device",
        "virtserialport,chardev=log,name=polylet.log",
    ];
    words.map(str::to_owned).into()
}

/// The host is 10.0.2.2, and only its loopback addresses are reachable.
fn network(hardware: &Hardware) -> String {
    let ports = [(hardware.node_api, 10250), (hardware.api_server, 6443)];
    let forward = ports.map(|(port, to)| {
        let forward = port.map(|port| format!(",hostfwd=tcp:127.0.0.1:{port}-:{to}"));
        forward.unwrap_or_default()
    });
    format!("user,id=net,net=10.0.2.0/24{}", forward.concat())
}

/// The last lines of a log.
pub(crate) fn tail(path: &Path, lines: usize) -> String {
    let bytes = fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}
