use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use axum::body::to_bytes;
use tower::ServiceExt;

use super::*;

/// A directory of logs, one of pods beside it, and a secret beside both.
struct TestLogs {
    directory: tempfile::TempDir,
}

impl TestLogs {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for name in ["log", "log/containers", "log/a b", "pods"] {
            fs::create_dir(at(name)).unwrap();
        }
        for (name, text) in [
            ("secret", "secret"),
            ("pods/web.log", "of a pod"),
            ("log/syslog", "0123456789"),
            ("log/a b/x+y&z.log", "odd"),
        ] {
            fs::write(at(name), text).unwrap();
        }
        for (target, link) in [
            ("secret", "log/stolen"),
            ("pods/web.log", "log/containers/web.log"),
            ("log/syslog", "log/messages"),
            ("", "log/up"),
        ] {
            symlink(at(target), at(link)).unwrap();
        }
        symlink("../secret", at("log/relative")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("log/pipe"), rustix::fs::Mode::RUSR).unwrap();
        Self { directory }
    }

    async fn get(
        &self,
        path: &str,
        headers: &[(axum::http::HeaderName, &str)],
    ) -> (u16, HeaderMap, String) {
        let (root, pods) = ("log", "pods");
        let at = |name: &str| self.directory.path().join(name);
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        let router = router(
            LogDirectories::new(at(root), at(pods)),
            Some(at("journalctl")),
        );
        let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, 100_000).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        (parts.status.as_u16(), parts.headers, body)
    }
}

#[tokio::test]
async fn files_and_listings_are_served() {
    let logs = TestLogs::new();
    let (code, headers, body) = logs.get("/logs/syslog", &[]).await;
    assert_eq!((code, body.as_str()), (200, "0123456789"));
    assert_eq!(headers[CONTENT_TYPE], "text/plain; charset=utf-8");
    assert_eq!(headers[CONTENT_LENGTH], "10");
    let since = headers[LAST_MODIFIED].to_str().unwrap().to_owned();
    let (code, _, body) = logs
        .get("/logs/syslog", &[(IF_MODIFIED_SINCE, &since)])
        .await;
    assert_eq!((code, body.as_str()), (304, ""));
    let (code, headers, body) = logs.get("/logs/", &[]).await;
    assert_eq!(
        (code, &headers[CONTENT_TYPE]),
        (200, &"text/html; charset=utf-8".parse().unwrap())
    );
    for line in [
        "<a href=\"a%20b/\">a b/</a>",
        "<a href=\"syslog\">syslog</a>",
    ] {
        assert!(body.lines().any(|one| one == line), "{line} in {body}");
    }
    let (code, _, body) = logs.get("/logs/a%20b/x+y%26z.log", &[]).await;
    assert_eq!((code, body.as_str()), (200, "odd"));
}

#[tokio::test]
async fn parts_of_files_are_served() {
    let logs = TestLogs::new();
    let (code, headers, body) = logs.get("/logs/syslog", &[(RANGE, "bytes=-3")]).await;
    assert_eq!((code, body.as_str()), (206, "789"));
    assert_eq!(headers[CONTENT_RANGE], "bytes 7-9/10");
    let (code, headers, _) = logs.get("/logs/syslog", &[(RANGE, "bytes=10-")]).await;
    assert_eq!(
        (code, &headers[CONTENT_RANGE]),
        (416, &"bytes */10".parse().unwrap())
    );
}

#[tokio::test]
async fn requests_are_redirected_as_by_upstream() {
    let logs = TestLogs::new();
    for (path, location) in [
        ("/logs/containers?x=1", "containers/?x=1"),
        ("/logs/syslog/", "../syslog"),
        ("/logs/index.html", "./"),
    ] {
        let (code, headers, _) = logs.get(path, &[]).await;
        assert_eq!((code, headers[LOCATION].to_str().unwrap()), (301, location));
    }
}

#[tokio::test]
async fn nothing_outside_the_logs_is_served() {
    let logs = TestLogs::new();
    for (path, code) in [
        ("/logs/messages", 200),
        ("/logs/containers/web.log", 200),
        ("/logs/stolen", 403),
        ("/logs/relative", 403),
        ("/logs/up/", 403),
        ("/logs/up/secret", 403),
        ("/logs/../secret", 404),
        ("/logs/%2e%2e/secret", 404),
        ("/logs/a%20b/..%2f..%2fsecret", 404),
        ("/logs/pipe", 403),
        ("/logs/missing", 404),
        ("/logs/syslog/x", 404),
        ("/logs/%00", 500),
        ("/logs/%ff", 500),
    ] {
        let (found, _, body) = logs.get(path, &[]).await;
        assert_eq!(found, code, "{path}");
        assert!(!body.contains("secret"), "{path}: {body}");
    }
}

#[tokio::test]
async fn services_without_a_journal_have_files() {
    let logs = TestLogs::new();
    let (code, headers, body) = logs.get("/logs/?query=syslog", &[]).await;
    assert_eq!((code, body.as_str()), (200, "0123456789"));
    assert_eq!(headers[CONTENT_TYPE], "text/plain;charset=UTF-8");
    for (query, expected) in [
        (
            "messages",
            "\nerror getting log for messages: openat messages: path escapes from parent\n",
        ),
        (
            "..",
            "\nerror getting log for ..: openat ..: path escapes from parent\n",
        ),
        (
            "relative",
            "\nerror getting log for relative: openat relative: path escapes from parent\n",
        ),
        (
            "pipe",
            "\nerror getting log for pipe: openat pipe/pipe.log: not a directory\n",
        ),
        ("none", "\nlog not found for none\n"),
        (
            "none&tailLines=1",
            "\noptions present and query resolved to log files for [none]\ntry without specifying options\n",
        ),
    ] {
        let (code, _, body) = logs.get(&format!("/logs/?query={query}"), &[]).await;
        assert_eq!((code, body.as_str()), (200, expected), "{query}");
    }
}

#[tokio::test]
async fn queries_for_files_stay_below_the_logs() {
    let logs = TestLogs::new();
    let (code, _, body) = logs.get("/logs/?query=a%20b/x%2By%26z.log", &[]).await;
    assert_eq!((code, body.as_str()), (200, "odd"));
    for (path, message) in [
        (
            "/logs/?query=../secret",
            "query: Invalid value: [\"../secret\"]: statat ../secret: path escapes from parent\n",
        ),
        (
            "/logs/?query=/syslog",
            "query: Invalid value: [\"/syslog\"]: statat /syslog: path escapes from parent\n",
        ),
        (
            "/logs/syslog?query=syslog",
            "path not allowed in query mode\n",
        ),
    ] {
        let (code, _, body) = logs.get(path, &[]).await;
        assert_eq!((code, body.as_str()), (406, message), "{path}");
    }
}

impl TestLogs {
    /// Stands in for the journal's program, which has one unit.
    fn set_journalctl(&self, script: &str) {
        let path = self.directory.path().join("journalctl");
        let script =
            format!("#!/bin/sh\n[ $1 = --field ] && exec echo kubelet.service\n{script}\n");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn services_of_the_journal_come_before_those_with_files() {
    let logs = TestLogs::new();
    logs.set_journalctl("echo \"$@\"; echo complaint >&2");
    let (code, _, body) = logs.get("/logs/?query=syslog&query=kubelet", &[]).await;
    let journal = "--utc --no-pager --output=short-precise --unit=kubelet\ncomplaint\n";
    assert_eq!((code, body), (200, format!("{journal}0123456789")));
    let path = "/logs/?query=kubelet&pattern=a%20--b&tailLines=2";
    let (_, _, body) = logs.get(path, &[]).await;
    let journal = "--utc --no-pager --output=short-precise --pager-end --lines=2 --unit=kubelet --grep=a --b\ncomplaint\n";
    assert_eq!(body, journal);
}

#[tokio::test]
async fn a_search_ends_with_its_client() {
    let logs = TestLogs::new();
    let at = |name: &str| logs.directory.path().join(name);
    logs.set_journalctl(&format!(
        "echo $$ > {}\nexec sleep 1000",
        at("pid").display()
    ));
    let router = router(
        LogDirectories::new(at("log"), at("pods")),
        Some(at("journalctl")),
    );
    let request = Request::builder().uri("/logs/?query=kubelet&pattern=x");
    let request = request.body(Body::empty()).unwrap();
    let response = router.oneshot(request).await.unwrap();
    let pid = || fs::read_to_string(at("pid")).unwrap_or_default();
    until(|| pid().ends_with('\n')).await;
    drop(response);
    let process = std::path::PathBuf::from(format!("/proc/{}", pid().trim()));
    until(|| !process.exists()).await;
}

async fn until(mut is_met: impl FnMut() -> bool) {
    let polling = async {
        while !is_met() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let limit = std::time::Duration::from_secs(60);
    let met = tokio::time::timeout(limit, polling).await;
    met.expect("the condition in time");
}
