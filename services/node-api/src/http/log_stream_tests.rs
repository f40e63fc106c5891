use std::fs::File;
use std::future::pending;
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use futures::{StreamExt, TryStreamExt};
use polylet_cri::log::{LogOptions, LogWatcher, StreamFilter};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::*;

/// Generous, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(20);
const LINE: &str = "2026-01-01T00:00:00.000000000Z stdout F line\n";

fn open(path: &Path, options: LogOptions) -> LogReader {
    LogReader::open(path, options, pending(), &LogWatcher::default()).unwrap()
}

/// A log whose file system answers once the sender is used. The thread returns whether it was, in some time.
fn hanging_log(path: &Path) -> (Sender<()>, JoinHandle<bool>) {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap();
    let both_ends = File::options().read(true).write(true).open(path);
    let mut disk = both_ends.unwrap();
    let (sender, receiver) = channel();
    let thread = std::thread::spawn(move || {
        let is_released = receiver.recv_timeout(PATIENCE).is_ok();
        let lines = LINE.repeat(CHUNK_BYTES / "line\n".len() + 1);
        disk.write_all(lines.as_bytes()).unwrap();
        is_released
    });
    (sender, thread)
}

#[tokio::test]
async fn lines_are_sent_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    let line = |n: usize| format!("2026-01-01T00:00:00.000000000Z stdout F line {n}\n");
    std::fs::write(&path, (0..10_000).map(line).collect::<String>()).unwrap();
    let reader = open(&path, LogOptions::default());
    let sent = chunks(reader, LogThreads::default());
    let sent: Vec<Bytes> = sent.try_collect().await.unwrap();
    let expected: String = (0..10_000).map(|n| format!("line {n}\n")).collect();
    assert_eq!(sent.concat(), expected.as_bytes());
    assert_eq!(sent.len(), expected.len().div_ceil(CHUNK_BYTES));
}

#[tokio::test]
async fn a_follower_gets_each_line_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    std::fs::write(&path, LINE).unwrap();
    let options = LogOptions {
        follow: true,
        ..LogOptions::default()
    };
    let mut sent = Box::pin(chunks(open(&path, options), LogThreads::default()));
    for number in 2..5 {
        assert_eq!(sent.next().await.unwrap().unwrap(), "line\n");
        std::fs::write(&path, LINE.repeat(number)).unwrap();
    }
}

#[tokio::test]
async fn lines_that_are_excluded_are_read_on_several_turns() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    let last = LINE.replace("stdout", "stderr");
    std::fs::write(&path, LINE.repeat(3 * MAX_SKIPPED) + &last).unwrap();
    let options = LogOptions {
        streams: StreamFilter::Stderr,
        ..LogOptions::default()
    };
    let (_, bytes, next) = read_chunk(open(&path, options.clone()));
    assert_eq!((bytes, next.unwrap()), (Vec::new(), LogStep::Skipped));
    let sent = chunks(open(&path, options), LogThreads::default());
    let sent: Vec<Bytes> = sent.try_collect().await.unwrap();
    assert_eq!(sent, ["line\n"]);
}

#[tokio::test]
async fn a_log_whose_disk_hangs_delays_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    let (release, disk) = hanging_log(&path);
    let threads = LogThreads::default();
    let mut sent = Box::pin(chunks(open(&path, LogOptions::default()), threads.clone()));
    let other = directory.path().join("1.log");
    std::fs::write(&other, LINE).unwrap();
    let others = async {
        let reader = open(&other, LogOptions::default());
        let sent: Vec<Bytes> = chunks(reader, threads).try_collect().await.unwrap();
        assert_eq!(sent, ["line\n"]);
        let _ = release.send(());
    };
    let (sent, ()) = tokio::join!(sent.next(), others);
    assert!(disk.join().unwrap(), "the other log waits for the disk");
    assert!(sent.unwrap().unwrap().starts_with(b"line\n"));
}

#[tokio::test(start_paused = true)]
async fn requests_that_get_no_thread_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("0.log");
    std::fs::write(&path, LINE).unwrap();
    let threads = LogThreads::default();
    let begin = {
        let path = path.clone();
        move || {
            let (options, watcher) = (LogOptions::default(), LogWatcher::default());
            LogReader::open(&path, options, pending(), &watcher)
        }
    };
    let mut permits = Vec::new();
    for _ in 0..MAX_THREADS {
        permits.push(threads.permit().await.unwrap());
    }
    let refused = threads.open(begin.clone()).await;
    assert!(matches!(refused, Err(LogStreamError::Busy)));
    permits.pop();
    // A log that is open waits for its turn, and gives it back.
    let reader = threads.open(begin).await.unwrap();
    let sent: Vec<Bytes> = chunks(reader, threads).try_collect().await.unwrap();
    assert_eq!(sent, ["line\n"]);
}
