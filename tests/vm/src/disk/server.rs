use std::fs::File;
use std::io::{self, BufReader};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use polylet_harness::error::file;

use super::nbd::{self, NbdError, NbdRequest};
use super::write_cache::{Extent, Survival};
use super::{CacheLoss, SECTOR, WriteCache};
use crate::error::VmError;

/// The size of the cache. A drive that has filled it writes it out.
const CACHE_SIZE: usize = 64 << 20;

/// A disk with a volatile write cache, served to one QEMU at a time.
#[derive(Debug)]
pub struct VolatileDisk {
    backing: PathBuf,
    socket: PathBuf,
    shared: Arc<Mutex<CachedFile>>,
    connection: Option<JoinHandle<()>>,
}

/// The backing file and the cache before it.
#[derive(Debug)]
struct CachedFile {
    file: File,
    size: u64,
    cache: WriteCache,
    /// Writes until the disk loses its power.
    writes_left: Option<u32>,
    /// Whether it has: nothing is processed any more.
    is_off: bool,
    /// The first error of the backing file: the test's disk failed, not the guest's.
    failed: Option<io::Error>,
}

impl VolatileDisk {
    /// A disk with the content of the file at `backing`, which it changes, served at `socket`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened.
    pub fn open(backing: &Path, socket: &Path) -> Result<Self, VmError> {
        let opened = File::options().read(true).write(true).open(backing);
        let opened = file("open", backing, opened)?;
        let size = file("read", backing, opened.metadata())?.len();
        Ok(Self {
            backing: backing.to_owned(),
            socket: socket.to_owned(),
            shared: Arc::new(Mutex::new(CachedFile {
                file: opened,
                size: size - size % SECTOR as u64,
                cache: WriteCache::default(),
                writes_left: None,
                is_off: false,
                failed: None,
            })),
            connection: None,
        })
    }

    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Listens for the next QEMU.
    ///
    /// # Errors
    /// Fails if the socket cannot be created.
    pub fn serve(&mut self) -> Result<(), VmError> {
        // Left by the previous boot, if any.
        let _ = std::fs::remove_file(&self.socket);
        let listener = file("listen on", &self.socket, UnixListener::bind(&self.socket))?;
        let shared = Arc::clone(&self.shared);
        let serve = move || {
            // QEMU may connect more than once: a first time to learn the size.
            while let Ok((stream, _)) = listener.accept() {
                match connection(&stream, &shared) {
                    Ok(ConnectionEnd::BeforeRequests) => {}
                    Ok(ConnectionEnd::AfterRequests) | Err(_) => break,
                }
            }
        };
        self.connection = Some(std::thread::spawn(serve));
        Ok(())
    }

    /// The disk loses its power after this many more writes: it processes no further request. That is
    /// the only way to hit the moments between a write and the flush after it, which are short.
    pub fn lose_power_after(&self, writes: u32) {
        self.lock().writes_left = Some(writes);
    }

    /// Whether the disk has lost its power.
    pub fn is_off(&self) -> bool {
        self.lock().is_off
    }

    /// Waits until all requests of a QEMU that has ended are processed.
    ///
    /// # Errors
    /// Fails if the backing file had an error meanwhile.
    pub fn disconnected(&mut self) -> Result<(), VmError> {
        // Wakes a server that no QEMU has connected to.
        drop(UnixStream::connect(&self.socket));
        if let Some(connection) = self.connection.take() {
            // It does not panic; what it has to report is in the shared state.
            let _ = connection.join();
        }
        match self.lock().failed.take() {
            None => Ok(()),
            Some(error) => Ok(file("use", &self.backing, Err(error))?),
        }
    }

    /// Loses a random part of the cache. QEMU must have been killed before.
    ///
    /// # Errors
    /// Fails if the backing file had an error.
    pub fn cut_power(&mut self, random: &mut fastrand::Rng) -> Result<CacheLoss, VmError> {
        self.disconnected()?;
        let survival = Survival::choose(random);
        let mut disk = self.lock();
        (disk.is_off, disk.writes_left) = (false, None);
        let (surviving, loss) = disk.cache.cut_power(survival, random);
        file("write", &self.backing, disk.store(&surviving))?;
        Ok(loss)
    }

    /// Writes the cache out, as at the end of a machine that was switched off in order.
    ///
    /// # Errors
    /// Fails if the backing file had an error.
    pub fn switch_off(&mut self) -> Result<(), VmError> {
        self.disconnected()?;
        Ok(file("write", &self.backing, self.lock().flush())?)
    }

    fn lock(&self) -> MutexGuard<'_, CachedFile> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedFile {
    fn flush(&mut self) -> io::Result<()> {
        let extents = self.cache.flush();
        self.store(&extents)
    }

    fn store(&mut self, extents: &[Extent]) -> io::Result<()> {
        for extent in extents {
            self.file
                .write_all_at(&extent.data, extent.first * SECTOR as u64)?;
        }
        Ok(())
    }

    /// The number of the first sector of a valid request.
    fn first_sector(&self, offset: u64, length: usize) -> Option<u64> {
        let sector = SECTOR as u64;
        let end = offset.checked_add(length as u64)?;
        let aligned = offset.is_multiple_of(sector) && end.is_multiple_of(sector);
        (aligned && end <= self.size).then_some(offset / sector)
    }

    fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, NbdError> {
        let first = self.first_sector(offset, length);
        let first = first.ok_or(NbdError::Invalid)?;
        let mut data = vec![0; length];
        let read = self.file.read_exact_at(&mut data, offset);
        self.checked(read)?;
        self.cache.overlay(first, &mut data);
        Ok(data)
    }

    fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), NbdError> {
        let first = self.first_sector(offset, data.len());
        self.cache.write(first.ok_or(NbdError::Invalid)?, data);
        if let Some(left) = &mut self.writes_left {
            *left = left.saturating_sub(1);
            self.is_off = *left == 0;
        }
        if self.is_off {
            return Ok(());
        }
        if durable || self.cache.size() > CACHE_SIZE {
            // A drive may make more durable than it was asked to.
            return self.flushed();
        }
        Ok(())
    }

    fn flushed(&mut self) -> Result<(), NbdError> {
        let flushed = self.flush();
        self.checked(flushed)
    }

    fn checked(&mut self, result: io::Result<()>) -> Result<(), NbdError> {
        result.map_err(|error| {
            self.failed.get_or_insert(error);
            NbdError::Io
        })
    }
}

/// How a connection ended.
enum ConnectionEnd {
    /// The client left before its first request.
    BeforeRequests,
    /// The client disconnected after requests.
    AfterRequests,
}

/// Serves one connection. An error is the end of it: QEMU was killed.
fn connection(stream: &UnixStream, shared: &Mutex<CachedFile>) -> io::Result<ConnectionEnd> {
    let size = shared.lock().unwrap_or_else(PoisonError::into_inner).size;
    let mut both = stream;
    if !nbd::negotiate(&mut both, size)? {
        return Ok(ConnectionEnd::BeforeRequests);
    }
    let mut requests = BufReader::with_capacity(1 << 18, stream);
    let mut replies = stream;
    let mut end = ConnectionEnd::BeforeRequests;
    loop {
        let request = nbd::read_request(&mut requests)?;
        let mut disk = shared.lock().unwrap_or_else(PoisonError::into_inner);
        if disk.is_off && !matches!(request, NbdRequest::Disconnect) {
            continue;
        }
        let (handle, result) = match request {
            NbdRequest::Disconnect => return Ok(end),
            NbdRequest::Read {
                handle,
                offset,
                length,
            } => (handle, disk.read(offset, length)),
            NbdRequest::Write {
                handle,
                offset,
                data,
                durable,
            } => {
                let written = disk.write(offset, &data, durable);
                (handle, written.map(|()| Vec::new()))
            }
            NbdRequest::Flush { handle } => (handle, disk.flushed().map(|()| Vec::new())),
            NbdRequest::Unsupported { handle } => (handle, Err(NbdError::Unsupported)),
        };
        let is_off = disk.is_off;
        drop(disk);
        if is_off {
            // Without an error, which the guest would have time to handle.
            continue;
        }
        end = ConnectionEnd::AfterRequests;
        let data = result.as_ref().map(Vec::as_slice).map_err(|error| *error);
        nbd::reply(&mut replies, handle, data)?;
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    /// A client that speaks the protocol's bytes literally.
    struct RawClient(UnixStream);

    impl RawClient {
        fn connect(disk: &VolatileDisk) -> Self {
            let mut stream = UnixStream::connect(disk.socket()).expect("the server listens");
            let mut greeting = [0; 18];
            stream.read_exact(&mut greeting).expect("a greeting");
            assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
            stream.write_all(&3_u32.to_be_bytes()).expect("flags");
            // NBD_OPT_EXPORT_NAME of the export with the empty name.
            let option = [&b"IHAVEOPT"[..], &[0, 0, 0, 1, 0, 0, 0, 0]].concat();
            stream.write_all(&option).expect("an option");
            let mut export = [0; 10];
            stream.read_exact(&mut export).expect("the export");
            assert_eq!(export[..8], 8192_u64.to_be_bytes());
            assert_eq!(export[8..], [0, 0b1101]);
            Self(stream)
        }

        fn send(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) {
            let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
            request.extend([0, 0]);
            request.extend(kind.to_be_bytes());
            request.extend(7_u64.to_be_bytes());
            request.extend(offset.to_be_bytes());
            request.extend(length.to_be_bytes());
            request.extend(data);
            self.0.write_all(&request).expect("a request");
        }

        fn request(&mut self, kind: u16, offset: u64, length: u32, data: &[u8]) -> u32 {
            self.send(kind, offset, length, data);
            let mut reply = [0; 16];
            self.0.read_exact(&mut reply).expect("a reply");
            assert_eq!(reply[8..], 7_u64.to_be_bytes());
            u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]])
        }
    }

    #[test]
    fn a_killed_client_loses_what_it_did_not_flush() {
        let dir = std::env::temp_dir().join(format!("polylet-vm-disk-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let (backing, socket) = (dir.join("disk"), dir.join("disk.sock"));
        std::fs::write(&backing, vec![0; 8192]).expect("a disk");
        let mut disk = VolatileDisk::open(&backing, &socket).expect("a disk");
        // Of many cuts some lose everything: seeds are tried until one does.
        let lossy = (0..)
            .find(|seed| Survival::choose(&mut fastrand::Rng::with_seed(*seed)) == Survival::None)
            .expect("a seed");
        disk.serve().expect("a server");
        let mut client = RawClient::connect(&disk);
        assert_eq!(client.request(1, 0, 512, &[1; 512]), 0);
        assert_eq!(client.request(3, 0, 0, &[]), 0);
        assert_eq!(client.request(1, 0, 1024, &[2; 1024]), 0);
        assert_eq!(client.request(0, 0, 512, &[]), 0);
        let mut read = [0; 512];
        client.0.read_exact(&mut read).expect("the data");
        assert_eq!(read, [2; 512], "a read sees the cache");
        assert_eq!(client.request(1, 100, 512, &[3; 512]), 22, "not aligned");
        assert_eq!(client.request(0, 8192, 512, &[]), 22, "beyond the end");
        assert_eq!(client.request(4, 0, 512, &[]), 95, "no trim");
        drop(client);
        let loss = disk
            .cut_power(&mut fastrand::Rng::with_seed(lossy))
            .expect("a cut");
        assert_eq!((loss.unflushed, loss.lost), (2, 2));
        let after = std::fs::read(&backing).expect("the disk");
        assert!(after[..512].iter().all(|byte| *byte == 1), "flushed");
        assert!(after[512..].iter().all(|byte| *byte == 0), "not flushed");
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_disk_without_power_processes_nothing() {
        let dir = std::env::temp_dir().join(format!("polylet-vm-off-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let (backing, socket) = (dir.join("disk"), dir.join("disk.sock"));
        std::fs::write(&backing, vec![0; 8192]).expect("a disk");
        let mut disk = VolatileDisk::open(&backing, &socket).expect("a disk");
        disk.serve().expect("a server");
        let mut client = RawClient::connect(&disk);
        disk.lose_power_after(2);
        assert_eq!(client.request(1, 0, 512, &[1; 512]), 0);
        client.send(1, 512, 512, &[2; 512]);
        // Flushes of the last write, and another one.
        client.send(3, 0, 0, &[]);
        client.send(1, 1024, 512, &[3; 512]);
        drop(client);
        let loss = disk
            .cut_power(&mut fastrand::Rng::with_seed(1))
            .expect("a cut");
        assert_eq!(loss.unflushed, 2, "both writes before, none after");
        assert!(!disk.is_off());
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
