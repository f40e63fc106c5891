//! What `polylet trace` writes for people, opened by programs that people open it with: a browser, and speedscope in it.
//! Leaves pictures in `target/screenshots`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine;
use polylet_e2e::ok;
use polylet_e2e::steps::Steps;
use polylet_harness::browser::{self, Browser, Page};
use polylet_harness::node::default_bin_dir;
use polylet_harness::{guard, machine};
use polylet_trace::Trace;
use polylet_trace::format::otlp_json;

/// Traces of pod starts.
#[path = "trace_browser/starts.rs"]
mod starts;

use starts::starts;

/// The most bytes of a page about a thousand starts.
const MAX_PAGE: u64 = 5 << 20;
/// A picture of an empty page has fewer bytes.
const MIN_PICTURE: u64 = 20_000;

/// Files of the test, and the pictures that stay.
struct Files {
    directory: tempfile::TempDir,
    pictures: PathBuf,
}

impl Files {
    fn new() -> Files {
        let pictures = machine::target_dir().join("screenshots");
        ok(fs::create_dir_all(&pictures));
        Files {
            directory: ok(tempfile::tempdir()),
            pictures,
        }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    /// A file of OTLP's JSON.
    fn traces(&self, name: &str, traces: &[Trace]) -> String {
        let path = self.path(name);
        ok(otlp_json::write(traces, &mut ok(fs::File::create(&path))));
        path
    }

    /// Opens a file in a browser, and checks that there is something to see.
    fn open(&self, browser: &Browser, address: &str, picture: &str) -> Page {
        let picture = self.pictures.join(picture);
        let page = ok(browser.open(address, (1400, 2400), &picture));
        let bytes = ok(fs::metadata(&picture)).len();
        println!("  {} ({bytes} bytes)", picture.display());
        assert!(bytes > MIN_PICTURE, "an empty page");
        page
    }
}

fn trace_command(arguments: &[&str]) {
    let mut command = Command::new(default_bin_dir().join("polylet"));
    let output = ok(command.arg("trace").args(arguments).output());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
}

#[tokio::test]
#[ignore = "needs root, Chromium and npm: cargo verify -- --only e2e --e2e trace_browser"]
async fn files_are_read_by_a_browser_and_speedscope() {
    guard::on_signals();
    let say = |line: &str| eprintln!("{line}");
    let files = Files::new();
    let browser = ok(Browser::install(&say));
    let speedscope = ok(browser::speedscope(files.directory.path(), &say));
    let mut steps = Steps::new();
    let run = async { opens_report(&files, &browser) };
    steps.run("report", run).await;
    let run = async { opens_comparison(&files, &browser) };
    steps.run("comparison", run).await;
    let run = async { opens_drawing(&files, &browser) };
    steps.run("drawing", run).await;
    for format in ["chrome", "folded"] {
        let run = async { opens_in_speedscope(&files, &browser, &speedscope, format) };
        steps.run(&format!("{format} in speedscope"), run).await;
    }
    steps.finish();
}

/// A page that loads nothing, says nothing and runs no script but its own.
fn assert_self_contained(page: &Page) {
    assert_eq!(page.console, [""; 0]);
    assert_eq!(page.requests, [""; 0]);
    assert!(!page.document.contains("<img"), "a text became an element");
}

fn opens_report(files: &Files, browser: &Browser) {
    let traces = files.traces("starts.jsonl", &starts(1_000, "0.1.0", 0));
    let report = files.path("report.html");
    trace_command(&["report", &report, "--from", &traces]);
    let bytes = ok(fs::metadata(&report)).len();
    assert!(bytes <= MAX_PAGE, "{bytes} bytes");
    let page = files.open(browser, &format!("file://{report}"), "report.png");
    assert_self_contained(&page);
    for text in [
        "1000 traces",
        "cri.RunPodSandbox",
        "sync.volumes",
        "&lt;/script&gt;",
    ] {
        assert!(page.document.contains(text), "{text}");
    }
}

fn opens_comparison(files: &Files, browser: &Browser) {
    let before = files.traces("before.jsonl", &starts(40, "0.1.0", 0));
    let after = files.traces("after.jsonl", &starts(40, "0.2.0", 60));
    let report = files.path("comparison.html");
    trace_command(&["diff", &before, &after, "--html", &report]);
    let page = files.open(browser, &format!("file://{report}"), "comparison.png");
    assert_self_contained(&page);
    for text in ["slower", "0.2.0", "cri.RunPodSandbox"] {
        assert!(page.document.contains(text), "{text}");
    }
}

fn opens_drawing(files: &Files, browser: &Browser) {
    let traces = files.traces("one.jsonl", &starts(1, "0.1.0", 0));
    let drawing = files.path("drawing.svg");
    trace_command(&["export", "svg", "--to", &drawing, "--from", &traces]);
    let page = files.open(browser, &format!("file://{drawing}"), "drawing.png");
    assert_self_contained(&page);
    assert!(
        page.document.contains("cri.RunPodSandbox"),
        "{}",
        page.document
    );
}

/// Speedscope lists what it has read of a profile as a table, which is part of the document.
fn opens_in_speedscope(files: &Files, browser: &Browser, speedscope: &Path, format: &str) {
    let traces = files.traces("few.jsonl", &starts(5, "0.1.0", 0));
    let profile = files.path(&format!("profile.{format}"));
    trace_command(&["export", format, "--to", &profile, "--from", &traces]);
    let content = base64::engine::general_purpose::STANDARD.encode(ok(fs::read(&profile)));
    let script = files.path(&format!("{format}.js"));
    let load = format!("speedscope.loadFileFromBase64('profile.{format}', '{content}')");
    ok(fs::write(&script, load));
    let page = format!(
        "file://{}#localProfilePath={}&view=sandwich",
        speedscope.display(),
        script.trim_start_matches('/')
    );
    let page = files.open(browser, &page, &format!("speedscope-{format}.png"));
    for step in ["cri.RunPodSandbox", "sync.volumes", "cri.StartContainer"] {
        let frame = format!("sync-coordinator/{step}<");
        let rows = page.document.matches(&frame).count();
        assert_eq!(rows, 1, "of five traces, in {}", page.document);
    }
}
