use std::fs::OpenOptions;
use std::io::Write;

use proptest::prelude::*;
use tokio::sync::oneshot;

use super::*;

fn stamped(n: u32, text: &str) -> String {
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

async fn all(path: &Path, options: Options) -> String {
    let mut reader = Reader::open(path, options, std::future::pending()).unwrap();
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
        &(stamped(1, "a") + &stamped(2, "b")),
    );
    append(&dir.join("0.log.20260101-000001"), &stamped(3, "c"));
    append(&path, &(stamped(4, "d") + &stamped(5, "e")));
    path
}

#[tokio::test]
async fn across_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = three_files(dir.path());
    let plain = Options::default();
    assert_eq!(all(&path, plain.clone()).await, "a\nb\nc\nd\ne\n");
    for (tail, wanted) in [
        (0, ""),
        (1, "e\n"),
        (2, "d\ne\n"),
        (3, "c\nd\ne\n"),
        (4, "b\nc\nd\ne\n"),
        (9, "a\nb\nc\nd\ne\n"),
    ] {
        let options = Options {
            tail: Some(tail),
            ..plain.clone()
        };
        assert_eq!(all(&path, options).await, wanted, "{tail}");
    }
    let since = Options {
        since: Some("2026-01-01T00:00:03Z".parse().unwrap()),
        ..plain.clone()
    };
    assert_eq!(all(&path, since).await, "c\nd\ne\n");
    let limited = Options {
        limit_bytes: Some(5),
        ..plain
    };
    assert_eq!(all(&path, limited).await, "a\nb\nc");
}

#[tokio::test]
async fn times_streams_and_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    append(&path, "2026-01-01T00:00:00.5Z stdout P long \n");
    append(&path, "2026-01-01T00:00:01Z stdout F line\n");
    append(&path, "junk\n");
    append(&path, "2026-01-01T00:00:02Z stderr F bad\n");
    append(&path, "2026-01-01T00:00:03Z stdout F cut");
    let options = Options {
        timestamps: true,
        ..Default::default()
    };
    assert_eq!(
        all(&path, options).await,
        "2026-01-01T00:00:00.500000000Z long line\n2026-01-01T00:00:02.000000000Z bad\n\
         2026-01-01T00:00:03.000000000Z cut\n"
    );
    let options = Options {
        streams: Streams::Stderr,
        ..Default::default()
    };
    assert_eq!(all(&path, options).await, "bad\n");
}

#[tokio::test]
async fn follows_writes_and_rotation_to_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    let (end, ended) = oneshot::channel::<()>();
    let options = Options {
        follow: true,
        ..Default::default()
    };
    // Before the file exists.
    let mut reader = Reader::open(&path, options, async { ended.await.unwrap_or(()) }).unwrap();
    append(&path, &stamped(1, "a"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"a\n");
    // Half a line is waited for.
    let (head, rest) = {
        let line = stamped(2, "b");
        (line[..20].to_owned(), line[20..].to_owned())
    };
    append(&path, &head);
    assert!(
        futures::poll!(Box::pin(reader.next())).is_pending(),
        "half a line is none"
    );
    append(&path, &rest);
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"b\n");
    // Rotated with something unread in the old file.
    append(&path, &stamped(3, "c"));
    std::fs::rename(&path, dir.path().join("0.log.20260101-000000")).unwrap();
    append(&path, &stamped(4, "d"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"c\n");
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"d\n");
    // The container ends: what is there is read, then it is over.
    append(&path, &stamped(5, "e"));
    end.send(()).unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"e\n");
    assert!(reader.next().await.is_none());
}

#[tokio::test]
async fn tail_nothing_and_follow_begins_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let path = three_files(dir.path());
    let options = Options {
        tail: Some(0),
        follow: true,
        ..Default::default()
    };
    let mut reader = Reader::open(&path, options, std::future::pending()).unwrap();
    append(&path, &stamped(6, "f"));
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"f\n");
}

#[tokio::test]
async fn a_log_that_is_not_there_is_named() {
    let path = Path::new("/nowhere/at/all/0.log");
    let error = Reader::open(path, Options::default(), std::future::pending())
        .err()
        .unwrap();
    assert!(error.to_string().contains("/nowhere/at/all/0.log"));
}

#[tokio::test]
async fn a_line_without_end_does_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.log");
    append(&path, &"x".repeat(LONGEST * 2 + 17));
    append(&path, &("\n".to_owned() + &stamped(1, "a")));
    assert_eq!(all(&path, Options::default()).await, "a\n");
}

proptest! {
    #[test]
    fn junk_never_panics(junk: Vec<u8>, tail: Option<u8>, limit: Option<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        std::fs::write(&path, &junk).unwrap();
        let options = Options {
            tail: tail.map(u64::from), limit_bytes: limit.map(u64::from), ..Default::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut reader = Reader::open(&path, options, std::future::pending()).unwrap();
            while let Some(chunk) = reader.next().await { chunk.unwrap(); }
        });
    }
}
