//! Formats, checks, mounts and resizes disks: upstream's SafeFormatAndMount, with the same programs
//! of the node and the same messages.

use std::fs::File;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::process::Command;

/// The deadline of a program: large disks are formatted in seconds and checked in minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// The exit code of `blkid` for an empty disk.
const BLKID_NOT_FOUND: i32 = 2;
/// The exit code of `fsck` for errors left uncorrected.
const FSCK_UNCORRECTED: i32 = 4;
/// The format of a disk with a partition table, which is never formatted.
const PARTITIONS: &str = "unknown data, probably partitions";

/// A disk to mount.
#[derive(Debug, Clone)]
pub struct DiskMount<'a> {
    /// The block device.
    pub device: &'a Path,
    /// The mount point.
    pub at: &'a Path,
    /// The file system; an empty disk is formatted with it.
    pub fs_type: &'a str,
    /// Options for `mount -o`.
    pub options: &'a [String],
}

/// Why a disk cannot be mounted, in upstream's wording.
#[derive(Debug, PartialEq, Eq)]
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

/// Mounts a disk; formats an empty one first, and checks others.
pub async fn mount(disk: &DiskMount<'_>) -> Result<(), DiskMountError> {
    let device = disk.device.display();
    let read_only = disk.options.iter().any(|option| option == "ro");
    let present = detect_format(disk.device).await;
    let present =
        present.map_err(|error| format!("failed to get disk format of disk {device}: {error}"))?;
    if present.is_empty() && read_only {
        let message = format!(
            "cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
        );
        return Err(message.into());
    }
    let mismatch = !present.is_empty() && present != disk.fs_type;
    if present.is_empty() {
        mkfs(disk).await?;
    } else {
        if mismatch {
            tracing::warn!(
                %device,
                present,
                specified = disk.fs_type,
                "disk has another file system than specified"
            );
        }
        if !read_only {
            fsck(disk.device).await?;
        }
    }
    let options = [disk.options, &["defaults".to_owned()]].concat().join(",");
    let (from, at) = (device.to_string(), disk.at.display().to_string());
    let arguments = ["-t", disk.fs_type, "-o", &options, &from, &at];
    let done = run("mount", &arguments, None).await;
    let done = done.map_err(|error| format!("mount failed: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    let message = format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
        exit_status(&done),
        arguments.join(" "),
        output(&done)
    );
    Err(DiskMountError { message, mismatch })
}

/// Resizes a mounted file system to the present size of its disk.
pub async fn resize(device: &Path, at: &Path) -> Result<(), String> {
    let (disk, at) = (device.display().to_string(), at.display().to_string());
    let present = detect_format(device).await;
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
    let done = run(program, arguments, None).await;
    let done = done.map_err(|error| failed(error, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(exit_status(&done), output(&done))),
    }
}

/// The file system of a disk; empty if there is none.
async fn detect_format(device: &Path) -> Result<String, String> {
    let device = device.display().to_string();
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device];
    let done = run("blkid", &arguments, None).await?;
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
async fn mkfs(disk: &DiskMount<'_>) -> Result<(), String> {
    let (device, kind) = (disk.device.display().to_string(), disk.fs_type);
    let failed = |code: String, output: String| {
        let at = disk.at.display();
        format!(
            "format of disk {device:?} failed: type:({kind:?}) target:({:?}) options:({:?}) errcode:({code}) output:({output}) ",
            at.to_string(),
            disk.options
        )
    };
    let locked = File::open(disk.device).and_then(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        Ok(file)
    });
    let locked = locked.map_err(|error| failed(error.to_string(), String::new()))?;
    let arguments: &[&str] = match kind {
        "ext3" | "ext4" => &["-F", "-m0", &device],
        "xfs" => &["-f", &device],
        _ => &[&device],
    };
    tracing::info!(path = device, fs_type = kind, "formatting empty disk");
    let done = run(&format!("mkfs.{kind}"), arguments, Some(locked)).await;
    let done = done.map_err(|error| failed(error, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(exit_status(&done), output(&done))),
    }
}

/// Checks a file system and repairs what is safe to repair.
async fn fsck(device: &Path) -> Result<(), String> {
    let path = device.display().to_string();
    let done = match run("fsck", &["-a", &path], None).await {
        Ok(done) => done,
        Err(error) => {
            tracing::warn!(path, error, "failed to run fsck; mounting without a check");
            return Ok(());
        }
    };
    if done.status.code() == Some(FSCK_UNCORRECTED) {
        return Err(format!(
            "'fsck' found errors on device {path} but could not correct them: {}",
            output(&done)
        ));
    }
    Ok(())
}

async fn run(program: &str, arguments: &[&str], lock: Option<File>) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    command.stdin(lock.map_or_else(Stdio::null, Stdio::from));
    match tokio::time::timeout(DEADLINE, command.output()).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::NotFound => Err(format!(
            "exec: {program:?}: executable file not found in $PATH"
        )),
        Ok(Err(error)) => Err(format!("exec: {program:?}: {error}")),
        Err(_) => Err(format!(
            "{program} did not end within {} s",
            DEADLINE.as_secs()
        )),
    }
}

fn output(done: &Output) -> String {
    let both = [done.stdout.as_slice(), &done.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn exit_status(done: &Output) -> String {
    match done.status.code() {
        Some(code) => format!("exit status {code}"),
        None => done.status.to_string(),
    }
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
