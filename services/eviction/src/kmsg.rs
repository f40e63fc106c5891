//! Follows the kernel log, where it is readable, and emits upstream's `SystemOOM` event for each
//! process killed because the machine was out of memory. Each one is reported once, also over restarts
//! of this process; those before its first start are not reported.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use polylet_kit::Ctx;
use polylet_kit::state_file::StateFile;
use polylet_wire::notice::v1::Severity;
use rustix::fs::OFlags;
use tokio::net::unix::pipe::Receiver;

use crate::core::oom::{OomLogParser, parse_record};

const KMSG: &str = "/dev/kmsg";
/// Version of the format of `oom.json`.
pub(crate) const VERSION: u32 = 1;
/// The longest record of the kernel.
const MAX_RECORD: usize = 8192;

/// Reports OOM kills until the process drains.
pub(crate) async fn watch(ctx: Ctx) {
    let drain = ctx.drain();
    let follow = async {
        let (kmsg, reader) = match open(&ctx) {
            Ok(opened) => opened,
            Err(error) => return error,
        };
        reader.follow(&ctx, kmsg).await
    };
    tokio::select! {
        () = drain.cancelled() => {}
        error = follow => {
            tracing::info!(path = KMSG, %error, "kernel log unavailable; OOM kills are not reported");
        }
    }
}

fn open(ctx: &Ctx) -> std::io::Result<(Receiver, KmsgReader)> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut kmsg = File::options().read(true).custom_flags(flags).open(KMSG)?;
    let file = StateFile::new(ctx.run_dir().join("oom.json"), VERSION);
    let position = file.restore("the kernel log is read from now on");
    let position = position.map_err(std::io::Error::other)?;
    if position.is_none() {
        kmsg.seek(SeekFrom::End(0))?;
    }
    let reader = KmsgReader {
        position,
        parser: OomLogParser::default(),
        file,
    };
    // Reads like a pipe: the present records, and then new ones as they come.
    Ok((Receiver::from_file_unchecked(kmsg)?, reader))
}

struct KmsgReader {
    /// Records up to this time, in microseconds since boot, have been reported.
    position: Option<u64>,
    parser: OomLogParser,
    file: StateFile<u64>,
}

impl KmsgReader {
    /// Follows the log. Returns why that has ended.
    async fn follow(mut self, ctx: &Ctx, kmsg: Receiver) -> std::io::Error {
        let mut buffer = vec![0; MAX_RECORD];
        loop {
            match next_record(&kmsg, &mut buffer).await {
                Ok(record) => self.handle_record(ctx, record).await,
                Err(error) => return error,
            }
        }
    }

    async fn handle_record(&mut self, ctx: &Ctx, raw: &[u8]) {
        let Some(record) = parse_record(raw) else {
            return;
        };
        match self.position {
            Some(position) if record.at <= position => return,
            Some(_) => {}
            // The next process instance starts to read here.
            None => self.set_position(record.at.saturating_sub(1)).await,
        }
        let victim = self.parser.parse(record.text);
        if let Some(message) = victim.and_then(|victim| victim.event_message()) {
            let notices = ctx.notices();
            notices.node(Severity::Warning, "SystemOOM", message);
            self.set_position(record.at).await;
        }
    }

    /// Saves the position in the background: the disk of a machine without memory is slow.
    async fn set_position(&mut self, position: u64) {
        self.position = Some(position);
        if let Err(error) = self.file.save_async(position).await {
            let error = polylet_kit::report(&error);
            tracing::warn!(error, "failed to save the position in the kernel log");
        }
    }
}

/// Waits for the next record. The log has thousands at the start, and whoever fills it may add more than
/// are read: other tasks have their turns in between.
async fn next_record<'a>(kmsg: &Receiver, buffer: &'a mut [u8]) -> std::io::Result<&'a [u8]> {
    let length = loop {
        tokio::task::consume_budget().await;
        kmsg.readable().await?;
        match kmsg.try_read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => break length,
            Err(error) => match error.kind() {
                // After a broken pipe (records were overwritten), the next read returns the oldest
                // record left.
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::BrokenPipe => {}
                _ => return Err(error),
            },
        }
    };
    Ok(buffer.get(..length).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use tokio::net::unix::pipe;

    use super::*;

    #[tokio::test(flavor = "local")]
    async fn a_full_log_does_not_keep_other_tasks_waiting() {
        let (sender, receiver) = pipe::pipe().expect("a pipe");
        sender.writable().await.expect("room");
        assert_eq!(sender.try_write(&[b'x'; 2048]).expect("room"), 2048);
        let turns = Rc::new(Cell::new(0));
        let other = Rc::clone(&turns);
        tokio::task::spawn_local(async move {
            loop {
                other.set(other.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let mut buffer = [0; 1];
        for _ in 0..2048 {
            next_record(&receiver, &mut buffer).await.expect("a record");
        }
        assert!(turns.get() > 2, "{} turns", turns.get());
    }
}
