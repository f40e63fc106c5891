use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::error::{HarnessError, file};

const DEVICE: &str = "/dev/fuse";
/// Pause between two looks for requests.
const PAUSE: Duration = Duration::from_millis(20);
/// The largest request; the kernel refuses smaller buffers.
const MAX_REQUEST: usize = 1 << 18;
const OPCODE_INIT: u32 = 26;

/// A mounted FUSE file system whose server never answers: every access below the mount point hangs,
/// as on a dead network file system. Unmounted on drop; accesses that hang then fail.
#[derive(Debug)]
pub struct HungFuse {
    mount_point: PathBuf,
    device: Option<File>,
    reader: Option<(Sender<()>, JoinHandle<()>)>,
}

impl HungFuse {
    /// Whether this machine has FUSE and this process may mount it.
    pub fn is_available() -> bool {
        rustix::process::geteuid().is_root() && Path::new(DEVICE).exists()
    }

    /// Mounts it on a directory. A process that hangs there ends when it is killed, as on most mounts.
    ///
    /// # Errors
    /// Fails without root or FUSE.
    pub fn mount(mount_point: &Path) -> Result<Self, HarnessError> {
        let path = PathBuf::from(DEVICE);
        let flags = OFlags::NONBLOCK.bits() as i32;
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags)
            .open(&path);
        let device = file("open", &path, opened)?;
        let options = format!(
            "fd={},rootmode=40755,user_id=0,group_id=0,allow_other",
            device.as_raw_fd()
        );
        let options = CString::new(options).unwrap_or_default();
        let mounted = mount(
            "hung",
            mount_point,
            "fuse",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(options.as_c_str()),
        );
        file("mount", mount_point, mounted.map_err(Into::into))?;
        Ok(Self {
            mount_point: mount_point.to_owned(),
            device: Some(device),
            reader: None,
        })
    }

    /// The same, but the server takes each request, and nothing but the end of this fixture ends a
    /// process that hangs there: it stays in uninterruptible sleep even when it is killed.
    ///
    /// # Errors
    /// Fails without root or FUSE.
    pub fn mount_unkillable(mount_point: &Path) -> Result<Self, HarnessError> {
        let mut mounted = Self::mount(mount_point)?;
        let device = mounted.device.as_ref().map(File::try_clone);
        let device = file("open", Path::new(DEVICE), device.transpose())?;
        if let Some(device) = device {
            let (stop, stopped) = channel();
            let take = move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(PAUSE) {
                    take_requests(&device);
                }
            };
            mounted.reader = Some((stop, std::thread::spawn(take)));
        }
        Ok(mounted)
    }

    /// The directory on which it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount_point
    }

    /// Ends the server, but leaves the mount: every access fails with `ENOTCONN`.
    pub fn disconnect(&mut self) {
        if let Some((stop, reader)) = self.reader.take() {
            drop(stop);
            let _ = reader.join();
        }
        self.device = None;
    }
}

impl Drop for HungFuse {
    fn drop(&mut self) {
        self.disconnect();
        // Fails if the test has unmounted it.
        let _ = unmount(
            &self.mount_point,
            UnmountFlags::DETACH | UnmountFlags::NOFOLLOW,
        );
    }
}

/// Reads all waiting requests and answers only the first one of the connection, without which no
/// other is sent.
fn take_requests(mut device: &File) {
    let mut request = vec![0_u8; MAX_REQUEST];
    loop {
        match device.read(&mut request) {
            Ok(length) => {
                if let Some(response) = init_response(&request[..length]) {
                    // Fails only if the file system was unmounted.
                    let _ = device.write_all(&response);
                }
            }
            // Aborted before it was read.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// The response to `FUSE_INIT`: `fuse_out_header` and `fuse_init_out` of protocol 7.31.
fn init_response(request: &[u8]) -> Option<Vec<u8>> {
    let opcode = u32::from_ne_bytes(request.get(4..8)?.try_into().ok()?);
    let unique = request.get(8..16)?;
    if opcode != OPCODE_INIT {
        return None;
    }
    const LENGTH: u32 = 16 + 64;
    const MAX_WRITE: u32 = 4096;
    let mut response = Vec::new();
    response.extend(LENGTH.to_ne_bytes());
    response.extend(0_i32.to_ne_bytes());
    response.extend(unique);
    for value in [7_u32, 31, 0, 0, 0, MAX_WRITE] {
        response.extend(value.to_ne_bytes());
    }
    response.resize(LENGTH as usize, 0);
    Some(response)
}
