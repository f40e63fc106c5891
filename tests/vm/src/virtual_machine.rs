use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use polylet_harness::guard::CleanupGuard;
use polylet_harness::machine;
use polylet_harness::scratch::{self, Scratch};

use crate::disk::{CacheLoss, VolatileDisk};
use crate::error::VmError;
use crate::guest::Guest;
use crate::image::BaseImage;
use crate::programs::{self, ProgramSet};
use crate::qemu::{Hardware, MachineFiles, Qemu, tail};

/// Time for a boot, on a slow and busy machine.
const BOOT_LIMIT: Duration = Duration::from_secs(240);

/// Time for switching off in order.
const POWER_OFF_LIMIT: Duration = Duration::from_secs(180);

/// The most writes before the power is cut, and the longest wait for them.
const MOST_WRITES: u32 = 64;
const WRITES_LIMIT: Duration = Duration::from_secs(3);

/// Commands of a diagnosis.
const DIAGNOSIS: [&str; 8] = [
    "systemctl --no-pager list-units --failed; systemctl --no-pager status polylet containerd",
    "/programs/polylet-vm-agent observe",
    "ps -eo pid,stat,wchan:24,args --forest",
    "ctr -n k8s.io tasks list; ctr -n k8s.io containers list",
    "ip -brief address; ip route; ss -tn",
    "iptables-save; nft list ruleset",
    "cat /proc/self/mountinfo; ls -lR /var/lib/polylet /var/lib/cni /var/lib/kubelet",
    "dmesg | tail -50; journalctl --no-pager --boot --unit containerd | tail -500",
];

/// Time limit of each.
const DIAGNOSIS_LIMIT: Duration = Duration::from_secs(20);

const REBOOT: [&str; 3] = ["systemctl", "--no-block", "reboot"];

const POWER_OFF: [&str; 3] = ["systemctl", "--no-block", "poweroff"];

/// A virtual machine with a disk of its own, which starts as a copy of the [`BaseImage`]. Removed
/// completely on drop; killed with this process.
#[derive(Debug)]
pub struct VirtualMachine {
    running: Option<(Qemu, Guest)>,
    boot_id: Option<String>,
    disk: VolatileDisk,
    files: MachineFiles,
    hardware: Hardware,
    guard: CleanupGuard,
    // Last field: the lock is released after everything else is dropped.
    scratch: Scratch,
}

impl VirtualMachine {
    /// Creates a machine that is switched off.
    ///
    /// # Errors
    /// Fails if the image cannot be built or a file cannot be written.
    pub async fn create(
        programs: &ProgramSet,
        hardware: Hardware,
        say: &dyn Fn(&str),
    ) -> Result<Self, VmError> {
        let image = BaseImage::ready(say).await?;
        let scratch = Scratch::create()?;
        let guard = CleanupGuard::new(scratch.dir());
        let dir = scratch.dir().to_owned();
        let backing = dir.join("root.ext4");
        let (from, to) = (
            image.disk().display().to_string(),
            backing.display().to_string(),
        );
        machine::run(
            Path::new("cp"),
            &["--sparse=always", "--reflink=auto", &from, &to],
        )?;
        let program_disk = dir.join("programs.ext4");
        programs::make_disk(programs, &scratch.sub("programs")?, &program_disk)?;
        let socket = dir.join("disk.sock");
        Ok(Self {
            running: None,
            boot_id: None,
            disk: VolatileDisk::open(&backing, &socket)?,
            files: MachineFiles {
                qemu: image.qemu(),
                kernel: image.kernel(),
                initrd: image.initrd(),
                disk: socket,
                programs: program_disk,
                dir,
            },
            hardware,
            guard,
            scratch,
        })
    }

    /// Switches the machine on and waits for its agent, which starts before the other services.
    /// Returns how long it took.
    ///
    /// # Errors
    /// Fails if QEMU exits or the machine does not boot in time, with the end of its console.
    pub async fn boot(&mut self) -> Result<Duration, VmError> {
        let begun = Instant::now();
        self.disk.serve()?;
        let mut qemu = Qemu::start(&self.files, &self.hardware)?;
        let guest = Guest::new(qemu.connect().await?);
        let booted = self.booted(&guest).await;
        match booted {
            Ok(boot_id) => self.boot_id = Some(boot_id),
            Err(VmError::AgentGone) => {
                qemu.ended(Duration::from_secs(5)).await;
                let status = qemu.exit_status();
                return Err(qemu.exited(status.as_deref().unwrap_or("agent's port closed")));
            }
            Err(error) => return Err(error),
        }
        self.running = Some((qemu, guest));
        Ok(begun.elapsed())
    }

    /// Reboots the machine in order, from inside. Returns how long it took.
    ///
    /// # Errors
    /// Fails if the machine does not boot in time.
    pub async fn reboot(&mut self) -> Result<Duration, VmError> {
        let begun = Instant::now();
        let guest = self.guest()?;
        // The agent may end before it responds; what counts is the next boot.
        let command = guest.run(&REBOOT, "", BOOT_LIMIT);
        let booted = tokio::select! {
            booted = self.booted(guest) => booted?,
            // Never before the time limit of the other.
            never = async { drop(command.await); std::future::pending().await } => never,
        };
        self.boot_id = Some(booted);
        Ok(begun.elapsed())
    }

    async fn booted(&self, guest: &Guest) -> Result<String, VmError> {
        let booted = guest.booted(self.boot_id.as_deref());
        match tokio::time::timeout(BOOT_LIMIT, booted).await {
            Ok(booted) => booted,
            Err(_) => Err(VmError::NotBooted {
                seconds: BOOT_LIMIT.as_secs(),
                console: tail(&self.files.console(), 30),
            }),
        }
    }

    /// The running machine's inside.
    ///
    /// # Errors
    /// [`VmError::NotRunning`].
    pub fn guest(&self) -> Result<&Guest, VmError> {
        let running = self.running.as_ref();
        Ok(&running.ok_or(VmError::NotRunning)?.1)
    }

    /// Cuts the power: the machine stops between two instructions, and a random part of what its
    /// disk had not flushed is lost.
    ///
    /// # Errors
    /// Fails if the machine is not running or its disk failed.
    pub fn cut_power(&mut self, random: &mut fastrand::Rng) -> Result<CacheLoss, VmError> {
        let (mut qemu, _) = self.running.take().ok_or(VmError::NotRunning)?;
        qemu.kill();
        self.disk.cut_power(random)
    }

    /// Cuts the power like [`cut_power`](Self::cut_power), in the middle of what the machine is writing:
    /// after one of its next writes, if there are any soon.
    ///
    /// # Errors
    /// See [`cut_power`](Self::cut_power).
    pub async fn cut_power_while_writing(
        &mut self,
        random: &mut fastrand::Rng,
    ) -> Result<CacheLoss, VmError> {
        self.disk.lose_power_after(random.u32(1..MOST_WRITES));
        let begun = Instant::now();
        while !self.disk.is_off() && begun.elapsed() < WRITES_LIMIT {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.cut_power(random)
    }

    /// Switches the machine off in order.
    ///
    /// # Errors
    /// Fails if it does not end in time; it is killed then.
    pub async fn power_off(&mut self) -> Result<(), VmError> {
        let (mut qemu, guest) = self.running.take().ok_or(VmError::NotRunning)?;
        // The agent may end before it responds; what counts is QEMU's end.
        let command = guest.run(&POWER_OFF, "", POWER_OFF_LIMIT);
        let ended = tokio::select! {
            ended = qemu.ended(POWER_OFF_LIMIT) => ended,
            // Never before the time limit of the other.
            () = async { drop(command.await); std::future::pending().await } => false,
        };
        qemu.kill();
        self.disk.switch_off()?;
        if ended {
            return Ok(());
        }
        Err(VmError::Timeout {
            what: "the machine to switch off".to_owned(),
            seconds: POWER_OFF_LIMIT.as_secs(),
            last: tail(&self.files.console(), 10),
        })
    }

    /// Checks the file system of a machine that is switched off; fails with the checker's output if
    /// it is damaged.
    ///
    /// # Errors
    /// Fails if the file system has errors.
    pub fn check_file_system(&self) -> Result<(), VmError> {
        let check = crate::image::program("e2fsck", "e2fsprogs")?;
        let disk = self.scratch.dir().join("root.ext4").display().to_string();
        // A journal that was not replayed is no error; `-p` replays it and repairs nothing else.
        machine::run(&check, &["-f", "-p", &disk])?;
        Ok(())
    }

    /// Saves what a look into the machine shows, for the logs of a failed test. Before the failure is
    /// reported: a machine that is dropped can no longer be asked.
    pub async fn diagnose(&self) {
        let Ok(guest) = self.guest() else { return };
        let mut text = String::new();
        for command in DIAGNOSIS {
            let output = guest.run(&["sh", "-c", command], "", DIAGNOSIS_LIMIT).await;
            let output = output.map_or_else(|error| error.to_string(), |output| output.text());
            text.push_str(&format!("# {command}\n{output}\n\n"));
        }
        // What fails here must not mask the test's failure.
        let _ = std::fs::write(self.diagnosis(), text);
    }

    fn diagnosis(&self) -> PathBuf {
        self.files.dir.join("diagnosis.log")
    }

    /// The machine's console.
    pub fn console(&self) -> PathBuf {
        self.files.console()
    }

    /// What the machine's services write to `/dev/virtio-ports/polylet.log`.
    pub fn service_log(&self) -> PathBuf {
        self.files.service_log()
    }

    /// The scratch directory.
    pub fn scratch(&self) -> &Path {
        self.scratch.dir()
    }

    /// Ends the machine and removes all files.
    ///
    /// # Errors
    /// Fails if something could not be removed.
    pub fn remove(mut self) -> Result<(), VmError> {
        self.running = None;
        let left = self.guard.sweep();
        if left.is_empty() {
            return Ok(());
        }
        Err(polylet_harness::HarnessError::Leftover { left }.into())
    }

    fn keep_logs(&self) {
        let logs = [
            self.files.console(),
            self.files.service_log(),
            self.files.dir.join("qemu.log"),
            self.diagnosis(),
        ];
        scratch::keep_logs(&self.scratch.facts().id, &logs);
    }
}

impl Drop for VirtualMachine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_logs();
        }
        self.running = None;
    }
}
