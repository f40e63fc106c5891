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
    let (file, log) = (dir.path().join("message"), dir.path().join("0.log"));
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
        append(&mut container, &mount(&file)).await;
        assert_eq!(container.message, expected, "{policy} {code} {text:?}");
    }
}

#[tokio::test]
async fn last_4096_bytes_follow_the_message_of_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("message");
    std::fs::write(&file, "x".repeat(5000) + "end").unwrap();
    let mut container = exited("File", 1, Path::new(""));
    container.message = "runtime".to_owned();
    append(&mut container, &mount(&file)).await;
    assert_eq!(container.message.len(), 4096 + "runtime: ".len());
    assert!(container.message.starts_with("runtime: x") && container.message.ends_with("end"));
}

#[tokio::test]
async fn a_directory_is_an_error_and_a_missing_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut container = exited("File", 1, Path::new(""));
    append(&mut container, &mount(dir.path())).await;
    assert!(
        container.message.contains("not a regular file"),
        "{}",
        container.message
    );
    let mut container = exited("File", 1, Path::new(""));
    append(&mut container, &mount(&dir.path().join("none"))).await;
    assert_eq!(container.message, "");
}
