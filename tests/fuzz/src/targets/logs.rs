//! Files of container logs: whatever a container wrote, and whatever is beside them.

use std::cell::LazyCell;
use std::future::pending;

use polylet_cri::log::{
    LogOptions, LogReader, LogWatcher, RotatedName, StreamFilter, parse_line, tail_message,
};

use super::manifests::now;
use crate::input::halves;
use crate::scratch::FuzzScratch;

thread_local! {
    static SCRATCH: LazyCell<FuzzScratch> = LazyCell::new(FuzzScratch::new);
}

/// A log and its rotated predecessor, separated by a zero byte. The first byte selects the options.
pub(super) fn log(data: &[u8]) {
    let Some((options, data)) = data.split_first() else {
        return;
    };
    let (current, rotated) = halves(data);
    for line in current.split_inclusive(|byte| *byte == b'\n') {
        // Most lines are not valid.
        let _ = parse_line(line);
    }
    RotatedName::parse("0.log", &String::from_utf8_lossy(rotated));
    let bit = |index: u32| options >> index & 1 == 1;
    let options = LogOptions {
        tail: bit(0).then_some(u64::from(bit(1)) * 3),
        since: bit(2).then(now),
        timestamps: bit(3),
        limit_bytes: bit(4).then_some(100),
        follow: false,
        streams: match bit(5) {
            true => StreamFilter::Stderr,
            false => StreamFilter::All,
        },
    };
    SCRATCH.with(|scratch| {
        let path = scratch.write("0.log", current);
        let rotated_path = match bit(6) {
            true => "0.log.20270101-000000.gz",
            false => "0.log.20270101-000000",
        };
        let rotated_path = scratch.write(rotated_path, rotated);
        // Errors are answers: the rotated file is seldom a valid archive.
        let _ = tail_message(&path, 80, 2048);
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.expect("a runtime");
        runtime.block_on(async {
            let Ok(mut reader) =
                LogReader::open(&path, options.clone(), pending(), &LogWatcher::default())
            else {
                return;
            };
            let mut length = 0;
            while let Some(Ok(chunk)) = reader.next().await {
                length += chunk.bytes.len();
            }
            if options.limit_bytes.is_some() {
                assert!(length <= 100, "more than the limit");
            }
        });
        // Each input has its own files only.
        let _ = std::fs::remove_file(rotated_path);
    });
}
