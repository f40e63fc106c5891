use polylet_cri::labels;

use super::*;

fn ended(policy: &str, exit_code: i32, log: &Path) -> Container {
    let annotations = [
        (labels::TERMINATION_MESSAGE_PATH, "/dev/termination-log"),
        (labels::TERMINATION_MESSAGE_POLICY, policy),
    ];
    let own = |(k, v): (&str, &str)| (k.to_owned(), v.to_owned());
    Container {
        exit_code,
        annotations: annotations.into_iter().map(own).collect(),
        log_path: log.display().to_string(),
        ..Default::default()
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
async fn from_the_file_or_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let (file, log) = (dir.path().join("words"), dir.path().join("0.log"));
    std::fs::write(&log, "2026-01-01T00:00:00Z stderr F from the log\n").unwrap();
    let cases = [
        ("File", 1, "said", "said"),
        ("File", 1, "", ""),
        ("FallbackToLogsOnError", 1, "said", "said"),
        ("FallbackToLogsOnError", 1, "", "from the log\n"),
        ("FallbackToLogsOnError", 0, "", ""),
    ];
    for (policy, code, said, wanted) in cases {
        std::fs::write(&file, said).unwrap();
        let mut container = ended(policy, code, &log);
        add(&mut container, &mount(&file)).await;
        assert_eq!(container.message, wanted, "{policy} {code} {said:?}");
    }
}

#[tokio::test]
async fn at_most_4096_bytes_from_the_end_after_the_runtimes_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("words");
    std::fs::write(&file, "x".repeat(5000) + "end").unwrap();
    let mut container = ended("File", 1, Path::new(""));
    container.message = "own".to_owned();
    add(&mut container, &mount(&file)).await;
    assert_eq!(container.message.len(), 4096 + "own: ".len());
    assert!(container.message.starts_with("own: x") && container.message.ends_with("end"));
}

#[tokio::test]
async fn what_is_no_file_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut container = ended("File", 1, Path::new(""));
    add(&mut container, &mount(dir.path())).await;
    assert!(
        container.message.contains("not a regular file"),
        "{}",
        container.message
    );
    let mut container = ended("File", 1, Path::new(""));
    add(&mut container, &mount(&dir.path().join("none"))).await;
    assert_eq!(container.message, "");
}
