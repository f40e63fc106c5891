use std::path::PathBuf;

use polylet_harness::go_module::{GoBuild, GoModule, GoProgram};
use polylet_harness::{HarnessError, machine};

use crate::SuiteKind;

const ANNOUNCEMENT: &str = "building the test suite of Kubernetes with Go, once (about 10 minutes)";

const CLUSTER_TESTS: GoProgram = GoProgram {
    name: "e2e.test",
    package: "k8s.io/kubernetes/test/e2e",
    build: GoBuild::Tests,
};

const NODE_TESTS: GoProgram = GoProgram {
    name: "e2e_node.test",
    package: "k8s.io/kubernetes/test/e2e_node",
    build: GoBuild::Tests,
};

/// A program of the module itself.
const IMAGES: GoProgram = GoProgram {
    name: "list-images",
    package: "./images",
    build: GoBuild::Native,
};

const RUNNER: GoProgram = GoProgram {
    name: "ginkgo",
    package: "github.com/onsi/ginkgo/v2/ginkgo",
    build: GoBuild::Native,
};

const AGNHOST: GoProgram = GoProgram {
    name: "agnhost",
    package: "k8s.io/kubernetes/test/images/agnhost",
    build: GoBuild::StaticCgo,
};

const NO_NEW_PRIVILEGES: GoProgram = GoProgram {
    name: "nonewprivs",
    package: "k8s.io/kubernetes/test/images/nonewprivs",
    build: GoBuild::StaticCgo,
};

/// The programs of the suite, built from the Go module `suites`.
#[derive(Debug)]
pub(crate) struct SuitePrograms {
    pub(crate) kind: SuiteKind,
    /// The suite's tests.
    pub(crate) tests: PathBuf,
    /// Runs several processes of the tests.
    pub(crate) runner: PathBuf,
    /// Prints the names of images.
    list_images: PathBuf,
    /// The program of most images of the suite.
    pub(crate) agnhost: PathBuf,
    /// Prints its effective user; its file has the set-user-id bit.
    pub(crate) no_new_privileges: PathBuf,
}

impl SuitePrograms {
    /// Builds missing programs.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or a program cannot be built.
    pub(crate) async fn ready(kind: SuiteKind, say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let source = machine::workspace().join("tests/conformance/suites");
        let own = ["images/main.go"];
        let module = GoModule::open("conformance", &source, &own, ANNOUNCEMENT)?;
        let mut module = module.with_kubernetes_version()?;
        let tests = match kind {
            SuiteKind::Cluster => &CLUSTER_TESTS,
            SuiteKind::Node => &NODE_TESTS,
        };
        Ok(Self {
            kind,
            tests: module.program(tests, say).await?,
            runner: module.program(&RUNNER, say).await?,
            list_images: module.program(&IMAGES, say).await?,
            agnhost: module.program(&AGNHOST, say).await?,
            no_new_privileges: module.program(&NO_NEW_PRIVILEGES, say).await?,
        })
    }

    /// The names of all images that the suites may ask for.
    ///
    /// # Errors
    /// Fails if they cannot be listed.
    pub(crate) fn images(&self) -> Result<Vec<String>, HarnessError> {
        let list = machine::run(&self.list_images, &[])?;
        Ok(list.lines().map(str::to_owned).collect())
    }
}
