use polylet_cri::labels;
use polylet_model::status::ContainerPhase;

use super::*;

fn exited(policy: &str, exit_code: i32, log: &Path) -> ContainerStatus {
    let annotations = [
        (labels::TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
        (labels::TERMINATION_MESSAGE_POLICY, policy),
    ];
    let owned = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
    ContainerStatus {
        exit_code,
        annotations: annotations.into_iter().map(owned).collect(),
        log_path: log.display().to_string(),
        ..ContainerStatus::new("c", ContainerPhase::Exited)
    }
}

/// A reader, and the path of a container's file in the directory of pods.
fn reader(root: &Path) -> (TerminationMessageReader, PathBuf) {
    let directory = root.join("pods/u/containers/c");
    std::fs::create_dir_all(&directory).unwrap();
    let reader = TerminationMessageReader::new(root, CancellationToken::new());
    (reader, directory.join("0123abcd"))
}

fn mount(path: &Path) -> Vec<v1::Mount> {
    vec![v1::Mount {
        container_path: "/dev/termination-log".to_owned(),
        host_path: path.display().to_string(),
        ..Default::default()
    }]
}

#[tokio::test]
async fn message_comes_from_the_file_or_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, file) = reader(dir.path());
    let log = dir.path().join("0.log");
    std::fs::write(&log, "2026-01-01T00:00:00Z stderr F from the log\n").unwrap();
    let cases = [
        ("File", 1, "text", "text"),
        ("File", 1, "", ""),
        ("FallbackToLogsOnError", 1, "text", "text"),
        ("FallbackToLogsOnError", 1, "", "from the log\n"),
        ("FallbackToLogsOnError", 0, "", ""),
    ];
    for (policy, code, text, expected) in cases {
        std::fs::write(&file, text).unwrap();
        let mut container = exited(policy, code, &log);
        reader.append("u", &mut container, &mount(&file)).await;
        assert_eq!(container.message, expected, "{policy} {code} {text:?}");
    }
}

#[tokio::test]
async fn last_4096_bytes_follow_the_message_of_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, file) = reader(dir.path());
    std::fs::write(&file, "x".repeat(5000) + "end").unwrap();
    let mut container = exited("File", 1, Path::new(""));
    container.message = "runtime".to_owned();
    reader.append("u", &mut container, &mount(&file)).await;
    assert_eq!(container.message.len(), 4096 + "runtime: ".len());
    assert!(container.message.starts_with("runtime: x") && container.message.ends_with("end"));
}

#[tokio::test]
async fn a_directory_is_an_error_and_a_missing_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, missing) = reader(dir.path());
    let file = missing.with_file_name("directory");
    std::fs::create_dir(&file).unwrap();
    let mut container = exited("File", 1, Path::new(""));
    reader.append("u", &mut container, &mount(&file)).await;
    assert!(
        container.message.contains("not a regular file"),
        "{}",
        container.message
    );
    let mut container = exited("File", 1, Path::new(""));
    reader.append("u", &mut container, &mount(&missing)).await;
    assert_eq!(container.message, "");
}

#[test]
fn a_pipe_and_a_link_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let read = |name: &str| {
        let path = dir.path().join(name);
        TerminationFileTask { path }.run(&mut TaskProgress::none())
    };
    let mode = rustix::fs::Mode::RUSR;
    let pipe = dir.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    assert_eq!(read("pipe"), Err("not a regular file".to_owned()));
    std::fs::write(dir.path().join("shadow"), "root:x").unwrap();
    std::os::unix::fs::symlink("shadow", dir.path().join("link")).unwrap();
    assert!(read("link").is_err());
    assert_eq!(read("shadow"), Ok(Some(b"root:x".to_vec())));
    assert_eq!(read("absent"), Ok(None));
}

#[test]
fn files_on_volumes_are_recognized() {
    let reader = TerminationMessageReader::new(Path::new("/r"), CancellationToken::new());
    let is_on_volume = |path: &str| reader.is_on_volume(Path::new(path));
    assert!(!is_on_volume("/r/pods/u/containers/c/0123abcd"));
    for path in [
        "/r/pods/u/volumes/kubernetes.io~nfs/v",
        "/r/pods/u/volume-subpaths/v/c/0",
        "/r/pods/u/containers/c",
        "/srv/data",
    ] {
        assert!(is_on_volume(path), "{path}");
    }
}
