//! A disk of the node with a file system: given one when it has none, checked when it has, and
//! mounted. Upstream's rules, with the same programs of the node.

use std::fs::File;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::process::Command;

/// How long a program may take; large disks are given a file system in seconds, and checked in minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);
/// What `blkid` says of a disk on which nothing is.
const NOTHING: i32 = 2;
/// What `fsck` says of errors that it left.
const ERRORS_LEFT: i32 = 4;
/// Stands for a table of partitions: a disk with one is never given a file system.
const PARTITIONS: &str = "unknown data, probably partitions";

/// What is to be mounted, and how.
#[derive(Debug, Clone)]
pub struct Disk<'a> {
    /// The block device.
    pub device: &'a Path,
    /// Where.
    pub at: &'a Path,
    /// The file system that it has, or is given.
    pub fs_type: &'a str,
    /// Options for the mount, as `mount` reads them.
    pub options: &'a [String],
}

/// Why a disk cannot be had, in upstream's words.
#[derive(Debug, PartialEq, Eq)]
pub struct DiskError {
    /// Them.
    pub why: String,
    /// It has another file system than was asked for.
    pub mismatch: bool,
}

impl From<String> for DiskError {
    fn from(why: String) -> Self {
        let mismatch = false;
        Self { why, mismatch }
    }
}

/// Mounts a disk, and gives it a file system first where there is none.
///
/// # Errors
/// In upstream's words.
pub async fn mount(disk: &Disk<'_>) -> Result<(), DiskError> {
    let device = disk.device.display();
    let read_only = disk.options.iter().any(|option| option == "ro");
    let has = format(disk.device).await;
    let has = has.map_err(|why| format!("failed to get disk format of disk {device}: {why}"))?;
    if has.is_empty() && read_only {
        let why = format!(
            "cannot mount unformatted disk {device} as we are manipulating it in read-only mode"
        );
        return Err(why.into());
    }
    let mismatch = !has.is_empty() && has != disk.fs_type;
    if has.is_empty() {
        make(disk).await?;
    } else {
        if mismatch {
            tracing::warn!(%device, has, wanted = disk.fs_type, "a disk has another file system");
        }
        if !read_only {
            check(disk.device).await?;
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
    let why = format!(
        "mount failed: {}\nMounting command: mount\nMounting arguments: {}\nOutput: {}",
        ended(&done),
        arguments.join(" "),
        said(&done)
    );
    Err(DiskError { why, mismatch })
}

/// Makes a mounted file system as large as its disk is now, which is what the kernel says of it.
///
/// # Errors
/// In upstream's words.
pub async fn grow(device: &Path, at: &Path) -> Result<(), String> {
    let (disk, at) = (device.display().to_string(), at.display().to_string());
    let has = format(device).await;
    let has = has.map_err(|why| {
        format!("ResizeFS.Resize - error checking format for device {disk}: {why}")
    })?;
    let (program, arguments, of): (_, &[&str], _) = match has.as_str() {
        // Whoever gives it a file system takes all of it.
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
    let failed = |why: String, said: String| {
        format!("resize of device {of} failed: {why}. {program} output: {said}")
    };
    let done = run(program, arguments, None).await;
    let done = done.map_err(|why| failed(why, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(ended(&done), said(&done))),
    }
}

/// The file system on a disk; nothing when there is none.
async fn format(device: &Path) -> Result<String, String> {
    let device = device.display().to_string();
    let arguments = ["-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", &device];
    let done = run("blkid", &arguments, None).await?;
    match done.status.code() {
        Some(0) => Ok(read(&said(&done))?),
        Some(NOTHING) => Ok(String::new()),
        _ => Err(ended(&done)),
    }
}

/// Reads what `blkid` says.
fn read(said: &str) -> Result<String, String> {
    let mut found = String::new();
    for line in said.lines().filter(|line| !line.is_empty()) {
        let Some((key, is)) = line.split_once('=').filter(|(_, is)| !is.contains('=')) else {
            return Err(format!("blkid returns invalid output: {said}"));
        };
        match key {
            "PTTYPE" if !is.is_empty() => return Ok(PARTITIONS.to_owned()),
            "TYPE" => is.clone_into(&mut found),
            _ => {}
        }
    }
    Ok(found)
}

/// Gives a disk a file system. The program holds a lock on the disk, also when this process ends
/// before it: the next one does not begin beside it.
async fn make(disk: &Disk<'_>) -> Result<(), String> {
    let (device, kind) = (disk.device.display().to_string(), disk.fs_type);
    let failed = |code: String, said: String| {
        let at = disk.at.display();
        format!(
            "format of disk {device:?} failed: type:({kind:?}) target:({:?}) options:({:?}) errcode:({code}) output:({said}) ",
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
    tracing::info!(device, kind, "a disk without a file system is given one");
    let done = run(&format!("mkfs.{kind}"), arguments, Some(locked)).await;
    let done = done.map_err(|error| failed(error, String::new()))?;
    match done.status.success() {
        true => Ok(()),
        false => Err(failed(ended(&done), said(&done))),
    }
}

/// Has a file system checked, and mended as far as that is safe.
async fn check(device: &Path) -> Result<(), String> {
    let path = device.display().to_string();
    let done = match run("fsck", &["-a", &path], None).await {
        Ok(done) => done,
        Err(error) => {
            tracing::warn!(device = path, error, "a disk is not checked");
            return Ok(());
        }
    };
    if done.status.code() == Some(ERRORS_LEFT) {
        return Err(format!(
            "'fsck' found errors on device {path} but could not correct them: {}",
            said(&done)
        ));
    }
    Ok(())
}

async fn run(program: &str, arguments: &[&str], held: Option<File>) -> Result<Output, String> {
    let mut command = Command::new(program);
    command.args(arguments).kill_on_drop(true);
    command.stdin(held.map_or_else(Stdio::null, Stdio::from));
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

fn said(done: &Output) -> String {
    let both = [done.stdout.as_slice(), &done.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn ended(done: &Output) -> String {
    match done.status.code() {
        Some(code) => format!("exit status {code}"),
        None => done.status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn what_blkid_says() {
        assert_eq!(read("DEVNAME=/dev/x\nTYPE=ext4\n"), Ok("ext4".to_owned()));
        assert_eq!(read("\n"), Ok(String::new()));
        let parts = read("TYPE=ext4\nPTTYPE=dos\n").unwrap();
        assert_eq!(parts, "unknown data, probably partitions");
        assert!(read("a=b=c").is_err() && read("junk").is_err());
    }
}
