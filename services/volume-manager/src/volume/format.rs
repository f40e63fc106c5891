//! Formats, checks, mounts and resizes disks: upstream's SafeFormatAndMount, with the same programs
//! of the node and the same messages. Runs in a child process: a dead disk answers nothing.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use polylet_kit::subprocess::{SubprocessTask, TaskProgress};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::program::{self, exit_status, output};

/// The deadline of all programs: large disks are formatted in seconds and checked in minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// The exit code of `blkid` for an empty disk.
const BLKID_NOT_FOUND: i32 = 2;
/// The exit code of `fsck` for errors left uncorrected.
const FSCK_UNCORRECTED: i32 = 4;
/// The format of a disk with a partition table, which is never formatted.
const PARTITIONS: &str = "unknown data, probably partitions";

/// Mounts a disk; formats an empty one first, and checks others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MountDiskTask {
    /// The block device.
    pub device: PathBuf,
    /// The mount point.
    pub at: PathBuf,
    /// The file system; an empty disk is formatted with it.
    pub fs_type: String,
    /// Options for `mount -o`.
    pub options: Vec<String>,
}

/// What was found out about a mounted disk, for the log.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountedDisk {
    /// It was empty and has been formatted.
    pub formatted: bool,
    /// It has another file system than specified: this one.
    pub mismatch: Option<String>,
    /// The check could not be run.
    pub check_error: Option<String>,
}

/// Why a disk cannot be mounted, in upstream's wording.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMountError {
    /// The message.
    pub message: String,
    /// The disk has another file system than specified.
    pub mismatch: bool,
}

impl From<String> for DiskMountError {
    fn from(message: String) -> Self {
        let mismatch = false;
        Self { message, mismatch }
    }
}

impl SubprocessTask for MountDiskTask {
    const NAME: &'static str = "mount-disk";
    type Progress = ();
    type Output = Result<MountedDisk, DiskMountError>;

    fn key(&self) -> String {
        self.device.display().to_string()
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        mount(&self)
    }
}

/// Resizes a mounted file system to the present size of its disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResizeDiskTask {
    /// The block device.
    pub device: PathBuf,
    /// The mount point.
    pub at: PathBuf,
}

impl SubprocessTask for ResizeDiskTask {
    const NAME: &'static str = "resize-disk";
    type Progress = ();
    type Output = Result<(), String>;

    fn key(&self) -> String {
        self.device.display().to_string()
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run(self, _progress: &mut TaskProgress<()>) -> Self::Output {
        resize(&self.device, &self.at)
    }
}

fn mount(disk: &MountDiskTask) -> Result<MountedDisk, DiskMountError> {
    let device = disk.device.display();
    let read_only = disk.options.iter().any(|option| option == "ro");
    let present = detect_format(&disk.device);
    let present =
        present.map_err(|error| format!("failed to get disk format of disk {device}: {error}"))?;
    if present.is_empty() && read_only {
        let message = format!(
            "cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
        );
        return Err(message.into());
    }
    let mismatch = !present.is_empty() && present != disk.fs_type;
    let mut mounted = MountedDisk {
        formatted: present.is_empty(),
        mismatch: mismatch.then(|| present.clone()),
        check_error: None,
    };
    if mounted.formatted {
        mkfs(disk)?;
    } else if !read_only {
        mounted.check_error = fsck(&disk.device)?;
    }
    let options = [disk.options.as_slice(), &["defaults".to_owned()]]
        .concat()
        .join(",");
    let (from, at) = (device.to_string(), disk.at.display().to_string());
    let arguments = ["-t", &disk.fs_type, "-o", &options, &from, &at];
    match program::mount(&arguments) {
        Ok(()) => Ok(mounted),
        Err(message) => Err(DiskMountError { message, mismatch }),
    }
}

fn resize(device: &Path, at: &Path) -> Result<(), String> {
    let (disk, at) = (device.display().to_string(), at.display().to_string());
    let present = detect_format(device);
    let present = present.map_err(|error| {
        format!("ResizeFS.Resize - error checking format for device {disk}: {error}")
    })?;
    let (program, arguments, target): (_, &[&str], _) = match present.as_str() {
        // An empty disk is formatted in its full size later.
        "" => return Ok(()),
        "ext3" | "ext4" => ("resize2fs", &[&disk], &disk),
        "xfs" => ("xfs_growfs", &["-d", &at], &at),
        "btrfs" => ("btrfs", &["filesystem", "resize", "max", &at], &at),
        other => {
            return Err(format!(
                "ResizeFS.Resize - resize of format {other} is not supported for device {disk} mounted at {at}"
            ));
        }
    };
    let failed = |error: String, output: String| {
        format!("resize of device {target} failed: {error}. {program} output: {output}")
    };
    let done = run(program, arguments, None);
    let done = done.map_err(|error| failed(error, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(exit_status(&done), output(&done))),
    }
}

/// The file system of a disk; empty if there is none.
fn detect_format(device: &Path) -> Result<String, String> {
    let device = device.display().to_string();
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device];
    let done = run("blkid", &arguments, None)?;
    match done.status.code() {
        Some(0) => Ok(parse_blkid(&output(&done))?),
        Some(BLKID_NOT_FOUND) => Ok(String::new()),
        _ => Err(exit_status(&done)),
    }
}

/// Parses the output of `blkid -o export`.
fn parse_blkid(output: &str) -> Result<String, String> {
    let mut fs_type = String::new();
    for line in output.lines().filter(|line| !line.is_empty()) {
        let Some((key, value)) = line
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
        else {
            return Err(format!("blkid returns invalid output: {output}"));
        };
        match key {
            "PTTYPE" if !value.is_empty() => return Ok(PARTITIONS.to_owned()),
            "TYPE" => value.clone_into(&mut fs_type),
            _ => {}
        }
    }
    Ok(fs_type)
}

/// Formats a disk. `mkfs` inherits a lock on the disk, so that a restarted process does not run
/// another beside it.
fn mkfs(disk: &MountDiskTask) -> Result<(), String> {
    let (device, kind) = (disk.device.display().to_string(), &disk.fs_type);
    let failed = |code: String, output: String| {
        let at = disk.at.display();
        format!(
            "format of disk {device:?} failed: type:({kind:?}) target:({:?}) options:({:?}) errcode:({code}) output:({output}) ",
            at.to_string(),
            disk.options
        )
    };
    let locked = File::open(&disk.device).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    });
    let locked = locked.map_err(|error| failed(error.to_string(), String::new()))?;
    let arguments: &[&str] = match kind.as_str() {
        "ext3" | "ext4" => &["-F", "-m0", &device],
        "xfs" => &["-f", &device],
        _ => &[&device],
    };
    let done = run(&format!("mkfs.{kind}"), arguments, Some(locked));
    let done = done.map_err(|error| failed(error, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(exit_status(&done), output(&done))),
    }
}

/// Checks a file system and repairs what is safe to repair; returns why the check could not be run.
fn fsck(device: &Path) -> Result<Option<String>, String> {
    let path = device.display().to_string();
    let done = match run("fsck", &["-a", &path], None) {
        Ok(done) => done,
        Err(error) => return Ok(Some(error)),
    };
    if done.status.code() == Some(FSCK_UNCORRECTED) {
        return Err(format!(
            "'fsck' found errors on device {path} but could not correct them: {}",
            output(&done)
        ));
    }
    Ok(None)
}

fn run(program: &str, arguments: &[&str], lock: Option<File>) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(arguments);
    command.stdin(lock.map_or_else(Stdio::null, Stdio::from));
    program::run(command)
}

#[cfg(test)]
mod tests {
    use super::parse_blkid;

    #[test]
    fn parses_the_output_of_blkid() {
        assert_eq!(
            parse_blkid("DEVNAME=/dev/x\nTYPE=ext4\n"),
            Ok("ext4".to_owned())
        );
        assert_eq!(parse_blkid("\n"), Ok(String::new()));
        let parts = parse_blkid("TYPE=ext4\nPTTYPE=dos\n").unwrap();
        assert_eq!(parts, "unknown data, probably partitions");
        assert!(parse_blkid("a=b=c").is_err() && parse_blkid("junk").is_err());
    }
}
