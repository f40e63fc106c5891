use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use polylet_harness::HarnessError;
use polylet_harness::containerd::tail;
use polylet_harness::error::file;
use serde::Deserialize;
use tokio::process::Child;

use crate::command;
use crate::specs::SpecSelection;
use crate::suite::SuitePrograms;
use crate::testbed::Testbed;

/// The result of a spec.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpecResult {
    pub(crate) name: String,
    pub(crate) seconds: f64,
    /// The first line of the failure.
    pub(crate) failure: Option<String>,
}

/// Runs the suite once. JUnit files, reports and its log are written to `dir`, which is emptied before.
///
/// # Errors
/// Fails if the suite cannot be run or leaves no report. Failed specs are results.
pub(crate) async fn suite(
    suite: &SuitePrograms,
    testbed: &mut Testbed,
    selection: &SpecSelection,
    procs: u32,
    dir: &Path,
) -> Result<Vec<SpecResult>, HarnessError> {
    if dir.exists() {
        file("empty", dir, fs::remove_dir_all(dir))?;
    }
    file("make", dir, fs::create_dir_all(dir))?;
    let log_path = dir.join("suite.log");
    let log = file("make", &log_path, File::create(&log_path))?;
    let also = file("open", &log_path, log.try_clone())?;
    let child = command::suite(suite, testbed, selection, procs, dir)?
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(also)
        .kill_on_drop(true)
        .spawn();
    let program = suite.runner.display().to_string();
    let run_error = |source| HarnessError::Run {
        program: program.clone(),
        source,
    };
    let mut child = child.map_err(run_error)?;
    let status = serve(testbed, &mut child).await.map_err(run_error)?;
    let report = command::report_file(dir);
    let Ok(text) = fs::read_to_string(&report) else {
        return Err(HarnessError::Failed {
            program,
            status: status.to_string(),
            output: tail(&log_path, 30),
        });
    };
    results(&text).map_err(|source| HarnessError::Json {
        what: "the suite's report",
        from: report.display().to_string(),
        source,
    })
}

/// Waits for the suite, and does meanwhile what its specs ask of the agent's unit.
async fn serve(testbed: &mut Testbed, child: &mut Child) -> io::Result<ExitStatus> {
    loop {
        let (request, reply) = tokio::select! {
            status = child.wait() => return status,
            next = testbed.next_unit_request() => next,
        };
        testbed.handle(request, reply).await;
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SuiteReport {
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    /// Duration in nanoseconds.
    run_time: u64,
    failure: Option<SpecFailure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecFailure {
    message: String,
}

/// Results of all specs that ran, and of the suite's own preparation if it failed.
fn results(text: &str) -> Result<Vec<SpecResult>, serde_json::Error> {
    let reports: Vec<SuiteReport> = serde_json::from_str(text)?;
    let specs = reports.into_iter().flat_map(|suite| suite.spec_reports);
    Ok(specs.flatten().filter_map(result).collect())
}

fn result(spec: SpecReport) -> Option<SpecResult> {
    let has_passed = spec.state == "passed";
    let was_left_out = ["skipped", "pending"].contains(&spec.state.as_str());
    let is_spec = spec.leaf_node_type == "It";
    let message = spec.failure.map(|failure| failure.message);
    // A spec that leaves itself out during its run, as one does on the wrong machine, gives a reason.
    let left_itself_out = was_left_out && message.is_some();
    if (was_left_out && !left_itself_out) || (has_passed && !is_spec) {
        return None;
    }
    let mut texts = spec.container_hierarchy_texts.unwrap_or_default();
    // Empty ones are not part of what is selected by, either.
    texts.retain(|text| !text.is_empty());
    texts.push(if is_spec {
        spec.leaf_node_text
    } else {
        spec.leaf_node_type
    });
    let failure = (!has_passed).then(|| {
        let message = message.unwrap_or_default();
        format!("{}: {}", spec.state, first_line(&message))
    });
    Some(SpecResult {
        name: texts.join(" "),
        seconds: spec.run_time as f64 / 1e9,
        failure,
    })
}

fn first_line(message: &str) -> String {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("no message").chars().take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_a_report() {
        let text = r#"[{ "SpecReports": [
            { "ContainerHierarchyTexts": ["[sig-node] Pods", "when"], "LeafNodeType": "It",
              "LeafNodeText": "should run", "State": "passed", "RunTime": 1500000000 },
            { "ContainerHierarchyTexts": ["[sig-node] Pods", ""], "LeafNodeType": "It",
              "LeafNodeText": "should stop", "State": "failed", "RunTime": 0,
              "Failure": { "Message": "\n  timed out\nmore" } },
            { "ContainerHierarchyTexts": ["a"], "LeafNodeType": "It",
              "LeafNodeText": "not chosen", "State": "skipped", "RunTime": 0 },
            { "ContainerHierarchyTexts": ["a"], "LeafNodeType": "It",
              "LeafNodeText": "needs a cloud", "State": "skipped", "RunTime": 0,
              "Failure": { "Message": "only on a cloud" } },
            { "ContainerHierarchyTexts": null, "LeafNodeType": "SynchronizedBeforeSuite",
              "LeafNodeText": "", "State": "passed", "RunTime": 5 },
            { "ContainerHierarchyTexts": null, "LeafNodeType": "ReportAfterSuite",
              "LeafNodeText": "", "State": "panicked", "RunTime": 0 }
        ]}, { "SpecReports": null }]"#;
        let result = |name: &str, seconds, failure: Option<&str>| SpecResult {
            name: name.to_owned(),
            seconds,
            failure: failure.map(str::to_owned),
        };
        let expected = vec![
            result("[sig-node] Pods when should run", 1.5, None),
            result(
                "[sig-node] Pods should stop",
                0.0,
                Some("failed: timed out"),
            ),
            result("a needs a cloud", 0.0, Some("skipped: only on a cloud")),
            result("ReportAfterSuite", 0.0, Some("panicked: no message")),
        ];
        assert_eq!(results(text).unwrap(), expected);
    }
}
