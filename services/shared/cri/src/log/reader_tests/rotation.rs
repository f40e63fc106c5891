//! No line is lost or read twice while files are rotated.

use super::*;

/// Rotates a log step by step.
struct Rotator {
    dir: PathBuf,
    writer: std::fs::File,
    written: u32,
    moved: u32,
    is_moved: bool,
    packed: u32,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Write,
    Move,
    Reopen,
    Pack,
    Read(u8),
}

impl Rotator {
    fn new(dir: &Path) -> Self {
        Rotator {
            dir: dir.to_owned(),
            writer: std::fs::File::create(dir.join("0.log")).unwrap(),
            written: 0,
            moved: 0,
            is_moved: false,
            packed: 0,
        }
    }

    fn stamp(&self, number: u32) -> PathBuf {
        self.dir.join(format!("0.log.20260101-{number:06}"))
    }

    fn act(&mut self, op: Op) {
        let current = self.dir.join("0.log");
        match op {
            Op::Write => {
                self.written += 1;
                let line = log_line(self.written % 60, &self.written.to_string());
                self.writer.write_all(line.as_bytes()).unwrap();
            }
            Op::Move if !self.is_moved => {
                self.moved += 1;
                self.is_moved = true;
                std::fs::rename(&current, self.stamp(self.moved)).unwrap();
            }
            Op::Reopen if self.is_moved => {
                self.is_moved = false;
                self.writer = std::fs::File::create(&current).unwrap();
            }
            // Never the newest.
            Op::Pack if self.packed + 1 < self.moved => {
                self.packed += 1;
                let plain = self.stamp(self.packed);
                let file = std::fs::File::create(
                    plain.with_file_name(format!("0.log.20260101-{:06}.gz", self.packed)),
                )
                .unwrap();
                let mut packer = flate2::write::GzEncoder::new(file, Default::default());
                packer.write_all(&std::fs::read(&plain).unwrap()).unwrap();
                packer.finish().unwrap();
                std::fs::remove_file(plain).unwrap();
            }
            _ => {}
        }
    }
}

fn any_ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        4 => Just(Op::Write),
        2 => Just(Op::Move),
        2 => Just(Op::Reopen),
        1 => Just(Op::Pack),
        2 => (0u8..6).prop_map(Op::Read),
    ];
    prop::collection::vec(op, 0..60)
}

async fn read_through(before: Vec<Op>, during: Vec<Op>) -> (Vec<String>, u32) {
    let dir = tempfile::tempdir().unwrap();
    let mut rotator = Rotator::new(dir.path());
    before.into_iter().for_each(|op| rotator.act(op));
    let (end, ended) = oneshot::channel::<()>();
    let ended = async { ended.await.unwrap_or(()) };
    let options = LogOptions {
        follow: true,
        ..Default::default()
    };
    let mut reader = open(&dir.path().join("0.log"), options, ended);
    let mut lines = Vec::new();
    let push_line = |lines: &mut Vec<String>, chunk: LogChunk| {
        lines.push(
            String::from_utf8(chunk.bytes)
                .unwrap()
                .trim_end()
                .to_owned(),
        );
    };
    for op in during {
        rotator.act(op);
        let Op::Read(most) = op else { continue };
        for _ in 0..most {
            let patience = std::time::Duration::from_secs(1);
            let Ok(chunk) = tokio::time::timeout(patience, reader.next()).await else {
                break;
            };
            push_line(&mut lines, chunk.unwrap().unwrap());
        }
    }
    drop(end);
    while let Some(chunk) = reader.next().await {
        push_line(&mut lines, chunk.unwrap());
    }
    (lines, rotator.written)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_line_is_lost_or_duplicated(before in any_ops(), during in any_ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all().start_paused(true).build().unwrap();
        let (lines, written) = runtime.block_on(read_through(before, during));
        let expected: Vec<String> = (1..=written).map(|n| n.to_string()).collect();
        prop_assert_eq!(lines, expected);
    }
}

#[tokio::test]
async fn lines_written_to_the_old_file_after_a_rotation_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut rotator = Rotator::new(dir.path());
    let options = LogOptions {
        follow: true,
        ..Default::default()
    };
    let path = dir.path().join("0.log");
    let mut reader = open(&path, options, std::future::pending());
    rotator.act(Op::Write);
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"1\n");
    // The runtime opens the new file before it closes the old one.
    rotator.act(Op::Move);
    let mut old = rotator.writer.try_clone().unwrap();
    rotator.act(Op::Reopen);
    rotator.act(Op::Write);
    assert!(futures::poll!(Box::pin(reader.next())).is_pending());
    old.write_all(log_line(9, "last").as_bytes()).unwrap();
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"last\n");
    assert_eq!(reader.next().await.unwrap().unwrap().bytes, b"2\n");
}

#[tokio::test]
async fn compressed_and_uncompressed_files_are_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let mut rotator = Rotator::new(dir.path());
    for _ in 0..4 {
        for op in [Op::Write, Op::Write, Op::Move, Op::Reopen, Op::Pack] {
            rotator.act(op);
        }
    }
    assert!(dir.path().join("0.log.20260101-000003.gz").exists());
    rotator.act(Op::Write);
    let path = dir.path().join("0.log");
    for (tail, expected) in [
        (None, "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
        (Some(2), "8\n9\n"),
        (Some(4), "6\n7\n8\n9\n"),
        (Some(99), "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
    ] {
        let options = LogOptions {
            tail,
            ..Default::default()
        };
        assert_eq!(read_all(&path, options).await, expected, "{tail:?}");
    }
    // A corrupt file ends where it is corrupt.
    std::fs::write(dir.path().join("0.log.20260101-000002.gz"), "no gzip").unwrap();
    assert_eq!(
        read_all(&path, LogOptions::default()).await,
        "1\n2\n5\n6\n7\n8\n9\n"
    );
    // Renamed by an interrupted rotation.
    rotator.act(Op::Move);
    let tail = LogOptions {
        tail: Some(1),
        ..Default::default()
    };
    assert_eq!(read_all(&path, tail).await, "9\n");
}
