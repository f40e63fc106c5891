use std::fs::OpenOptions;
use std::io::Write;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::super::StreamFilter;
use super::super::line_reader::MAX_LINE_BYTES;
use super::*;

#[path = "reader_tests/rotation.rs"]
mod rotation;

fn log_line(n: u32, text: &str) -> String {
    format!("2026-01-01T00:00:{n:02}.000000000Z stdout F {text}\n")
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

fn open(
    path: &Path,
    options: LogOptions,
    exit: impl Future<Output = ()> + Send + 'static,
) -> LogReader {
    LogReader::open(path, options, exit, &LogWatcher::default()).unwrap()
}

async fn read_all(path: &Path, options: LogOptions) -> String {
    read_rest(open(path, options, std::future::pending())).await
}

async fn read_rest(mut reader: LogReader) -> String {
    let mut text = Vec::new();
    while let Some(chunk) = reader.next().await {
        text.extend(chunk.unwrap().bytes);
    }
    String::from_utf8(text).unwrap()
}

fn three_files(dir: &Path) -> PathBuf {
    let path = dir.join("0.log");
    append(
        &dir.join("0.log.20260101-000000"),
        &(log_line(1, "a") + &log_line(2, "b")),
    );
    append(&dir.join("0.log.20260101-000001"), &log_line(3, "c"));
    append(&path, &(log_line(4, "d") + &log_line(5, "e")));
    path
}

#[tokio::test]
async fn reads_across_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = three_files(dir.path());
    let plain = LogOptions::default();
    assert_eq!(read_all(&path, plain.clone()).await, "a\nb\nc\nd\ne\n");
    for (tail, expected) in [
        (0, ""),
        (1, "e\n"),
        (2, "d\ne\n"),
        (3, "c\nd\ne\n"),
        (4, "b\nc\nd\ne\n"),
        (9, "a\nb\nc\nd\ne\n"),
    ] {
        let options = LogOptions {
            tail: Some(tail),
            ..plain.clone()
        };
        assert_eq!(read_all(&path, options).await, expected, "{tail}");
    }
    let since = LogOptions {
        since: Some("2026-01-01T00:00:03Z".parse().unwrap()),
        ..plain.clone()
    };
    assert_eq!(read_all(&path, since).await, "c\nd\ne\n");
    let limited = LogOptions {
        limit_bytes: Some(5),
        ..plain
    };
    assert_eq!(read_all(&path, limited).await, "a\nb\nc");
}

#[tokio::test]
async fn timestamps_streams_and_partial_lines() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    append(&path, "2026-01-01T00:00:00.5Z stdout P long \n");
    append(&path, "2026-01-01T00:00:01Z stdout F line\n");
    append(&path, "junk\n");
    append(&path, "2026-01-01T00:00:02Z stderr F bad\n");
    append(&path, "2026-01-01T00:00:03Z stdout F cut");
    let options = LogOptions {
        timestamps: true,
        ..Default::default()
    };
    assert_eq!(
        read_all(&path, options).await,
        "2026-01-01T00:00:00.500000000Z long line\n2026-01-01T00:00:02.000000000Z bad\n\
         2026-01-01T00:00:03.000000000Z cut\n"
    );
    let options = LogOptions {
        streams: StreamFilter::Stderr,
        ..Default::default()
    };
    assert_eq!(read_all(&path, options).await, "bad\n");
}

#[tokio::test]
async fn follows_writes_and_rotations_until_the_container_exits() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let (end, ended) = oneshot::channel::<()>();
    let options = LogOptions {
        follow: true,
        ..Default::default()
    };
    // Before the file exists.
    let mut reader = open(&path, options, async { ended.await.unwrap_or(()) });
    append(&path, &log_line(1, "a"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"a\n");
    // An incomplete line is not returned yet.
    let (head, rest) = {
        let line = log_line(2, "b");
        (line[..20].to_owned(), line[20..].to_owned())
    };
    append(&path, &head);
    assert!(
        futures::poll!(Box::pin(reader.next())).is_pending(),
        "half a line is none"
    );
    append(&path, &rest);
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"b\n");
    // Rotated with unread lines in the old file.
    append(&path, &log_line(3, "c"));
    std::fs::rename(&path, dir.path().join("0.log.20260101-000000")).unwrap();
    append(&path, &log_line(4, "d"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"c\n");
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"d\n");
    // After the container's exit, the rest is read.
    append(&path, &log_line(5, "e"));
    end.send(()).unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"e\n");
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn a_tail_ends_before_what_is_written_while_it_is_read() {
    for (tail, expected) in [(0, ""), (1, "e\n"), (3, "c\nd\ne\n")] {
        let dir = tempfile::tempdir().unwrap();
        let path = three_files(dir.path());
        let options = LogOptions {
            tail: Some(tail),
            ..Default::default()
        };
        let reader = open(&path, options, std::future::pending());
        append(&path, &log_line(6, "f"));
        assert_eq!(read_rest(reader).await, expected, "{tail}");
    }
}

#[tokio::test]
async fn following_with_an_empty_tail_starts_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = three_files(dir.path());
    let options = LogOptions {
        tail: Some(0),
        follow: true,
        ..Default::default()
    };
    let mut reader = open(&path, options, std::future::pending());
    append(&path, &log_line(6, "f"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"f\n");
}

#[tokio::test]
async fn errors_name_a_missing_log() {
    let path = Path::new("/nowhere/at/all/0.log");
    let error = LogReader::open(
        path,
        LogOptions::default(),
        std::future::pending(),
        &LogWatcher::default(),
    )
    .err()
    .unwrap();
    assert!(error.to_string().contains("/nowhere/at/all/0.log"));
}

#[tokio::test]
async fn memory_is_limited_without_line_breaks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    append(&path, &"x".repeat(MAX_LINE_BYTES * 2 + 17));
    append(&path, &("\n".to_owned() + &log_line(1, "a")));
    assert_eq!(read_all(&path, LogOptions::default()).await, "a\n");
}

proptest! {
    #[test]
    fn arbitrary_content_never_panics(junk: Vec<u8>, tail: Option<u8>, limit: Option<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, &junk).unwrap();
        let options = LogOptions {
            tail: tail.map(u64::from), limit_bytes: limit.map(u64::from), ..Default::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = open(&path, options, std::future::pending());
            while let Some(chunk) = reader.next().await { chunk.unwrap(); }
        });
    }
}
