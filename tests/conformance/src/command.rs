use std::path::{Path, PathBuf};

use polylet_harness::HarnessError;
use polylet_harness::cluster::CLUSTER_DOMAIN;
use tokio::process::Command;

use crate::node_suite::NodeSuite;
use crate::specs::SpecSelection;
use crate::suite::SuitePrograms;
use crate::testbed::Testbed;
use crate::unit::SOCKET_VARIABLE;

/// The suite ends itself after this time.
const LIMIT: &str = "6h";

/// The command line of the testbed's suite: the runner with several processes of the tests, which it
/// starts in their own directory. Reports are written to `dir`.
///
/// # Errors
/// Fails if a program of the control plane is missing or a file cannot be linked.
pub(crate) fn suite(
    suite: &SuitePrograms,
    testbed: &Testbed,
    selection: &SpecSelection,
    procs: u32,
    dir: &Path,
) -> Result<Command, HarnessError> {
    let tests = match &testbed.node_suite {
        Some(node_suite) => node_suite.tests(suite)?,
        None => suite.tests.clone(),
    };
    let mut command = ending_with_this();
    command
        .arg(&suite.runner)
        .arg(format!("--procs={procs}"))
        .arg(format!("--timeout={LIMIT}"))
        .arg(format!("--focus={}", selection.regex()))
        .arg(format!("--output-dir={}", dir.display()))
        .args(["--json-report=report.json", "--no-color", "--silence-skips"])
        .arg(tests)
        .arg("--")
        .arg(format!("--report-dir={}", dir.display()))
        .arg(format!("--host={}", testbed.cluster.server()));
    match &testbed.node_suite {
        Some(node_suite) => of_node(&mut command, testbed, node_suite),
        None => of_cluster(&mut command, testbed)?,
    }
    Ok(command)
}

/// Where the suite writes its report.
pub(crate) fn report_file(dir: &Path) -> PathBuf {
    dir.join("report.json")
}

/// A command that ends with this process.
fn ending_with_this() -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]);
    command
}

/// Arguments of the cluster's suite.
fn of_cluster(command: &mut Command, testbed: &Testbed) -> Result<(), HarnessError> {
    let cluster = &testbed.cluster;
    let kubectl = cluster.programs().path("kubectl")?;
    command
        .arg(format!("--kubeconfig={}", cluster.admin().display()))
        .arg(format!("--kubectl-path={}", kubectl.display()))
        .args(["--provider=skeleton", "--num-nodes=1"]);
    Ok(())
}

/// Arguments and environment of the node's suite.
fn of_node(command: &mut Command, testbed: &Testbed, node_suite: &NodeSuite) {
    let endpoint = testbed.node.containerd.endpoint();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let programs = node_suite.units.programs().to_owned();
    let search = std::iter::once(programs).chain(std::env::split_paths(&path));
    command
        .arg(format!("--bearer-token={}", node_suite.token))
        .arg(format!("--node-name={}", testbed.node.name()))
        .arg(format!("--dns-domain={CLUSTER_DOMAIN}"))
        .arg(format!("--container-runtime-endpoint={endpoint}"))
        .arg(format!(
            "--system-spec-file={}",
            node_suite.machine().display()
        ))
        // The agent, the control plane and the images are there.
        .args(["--start-services=false", "--stop-services=false"])
        .arg("--prepull-images=false")
        .env("PATH", std::env::join_paths(search).unwrap_or(path))
        .env(SOCKET_VARIABLE, node_suite.units.socket());
}
