//! Follows the kernel's log, where it may be read, for processes that were killed because the whole
//! machine was out of memory. What was told once is not told again by the next life; what came
//! before the first one is not ours to tell.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use polylet_kit::{Ctx, kept};
use polylet_wire::notice::v1::Severity;
use rustix::fs::OFlags;
use tokio::net::unix::pipe::Receiver;

use crate::core::oom::{Reader, record};

const LOG: &str = "/dev/kmsg";
const VERSION: u32 = 1;
/// The kernel's records are no longer.
const LONGEST: usize = 8192;

/// Tells of such processes until the process drains.
pub(crate) async fn watch(ctx: Ctx) {
    let drain = ctx.drain();
    let follow = async {
        let (log, follower) = match open(&ctx) {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        follower.follow(&ctx, log).await
    };
    tokio::select! {
        () = drain.cancelled() => {}
        error = follow => {
            tracing::info!(log = LOG, %error, "nobody tells when the machine is out of memory");
        }
    }
}

fn open(ctx: &Ctx) -> std::io::Result<(Receiver, Follower)> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut log = File::options().read(true).custom_flags(flags).open(LOG)?;
    let path = ctx.run_dir().join("oom.json");
    let told: Option<u64> = kept::load_or_set_aside(&path, VERSION, "the log is read from now on");
    if told.is_none() {
        log.seek(SeekFrom::End(0))?;
    }
    let reader = Reader::default();
    let follower = Follower { told, reader, path };
    // It is read as a pipe is: what there is, and then when there is more.
    Ok((Receiver::from_file_unchecked(log)?, follower))
}

struct Follower {
    /// All up to then has been told, or is not ours to tell; in microseconds as the log counts them.
    told: Option<u64>,
    reader: Reader,
    path: PathBuf,
}

impl Follower {
    /// Follows the log; says why that has ended.
    async fn follow(mut self, ctx: &Ctx, log: Receiver) -> std::io::Error {
        let mut buffer = vec![0; LONGEST];
        loop {
            if let Err(error) = log.readable().await {
                return error;
            }
            match log.try_read(&mut buffer) {
                Ok(0) => return ErrorKind::UnexpectedEof.into(),
                Ok(length) => {
                    let raw = buffer.get(..length).unwrap_or_default();
                    self.take(ctx, raw).await;
                }
                Err(error) => match error.kind() {
                    // Written faster than read: the next is the oldest that is left.
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::BrokenPipe => {}
                    _ => return error,
                },
            }
        }
    }

    async fn take(&mut self, ctx: &Ctx, raw: &[u8]) {
        let Some(record) = record(raw) else { return };
        match self.told {
            Some(told) if record.at <= told => return,
            Some(_) => {}
            // From here on the next life reads.
            None => self.keep(record.at.saturating_sub(1)).await,
        }
        let message = self.reader.read(record.text);
        if let Some(message) = message.and_then(|killed| killed.told()) {
            let notices = ctx.notices();
            notices.of_node(Severity::Warning, "SystemOOM", message);
            self.keep(record.at).await;
        }
    }

    /// On a thread that may block: a machine without memory has a slow disk.
    async fn keep(&mut self, told: u64) {
        self.told = Some(told);
        let path = self.path.clone();
        let saved = tokio::task::spawn_blocking(move || kept::save(&path, VERSION, &told)).await;
        if let Ok(Err(error)) = saved {
            let error = polylet_kit::report(&error);
            tracing::warn!(error, "it is not kept up to when the log was told");
        }
    }
}
