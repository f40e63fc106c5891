use std::path::{Path, PathBuf};

use crate::error::HarnessError;
use crate::go_module::{self, GoBuild, GoModule, GoProgram};
use crate::machine;

const ANNOUNCEMENT: &str =
    "building the programs of a Kubernetes cluster with Go, once (about 5 minutes)";

const SOURCES: [GoProgram; 6] = [
    native("etcd", "go.etcd.io/etcd/server/v3"),
    native("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    native("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    native(
        "kube-controller-manager",
        "k8s.io/kubernetes/cmd/kube-controller-manager",
    ),
    native("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    native("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
];

/// The kubelet requires cgo; the same for all programs shares their compiled packages.
const fn native(name: &'static str, package: &'static str) -> GoProgram {
    GoProgram {
        name,
        package,
        build: GoBuild::Native,
    }
}

/// Control plane binaries: from the directory in KUBEBUILDER_ASSETS, then from PATH, else built
/// from the Go module `tests/controlplane` and cached in the build directory.
#[derive(Debug, Clone)]
pub struct Programs {
    found: Vec<(&'static str, PathBuf)>,
}

impl Programs {
    /// Finds the binaries and builds missing ones: minutes the first time, nothing afterwards. An
    /// interrupted build is resumed.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or a program cannot be built.
    pub async fn ready(say: &dyn Fn(&str)) -> Result<Self, HarnessError> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let mut found = Vec::new();
        let mut module = None;
        for source in &SOURCES {
            let given = assets.as_deref().and_then(|dir| given(dir, source.name));
            let path = match given {
                Some(path) => path,
                None => {
                    let module = match &mut module {
                        Some(module) => module,
                        none => none.insert(go_programs()?),
                    };
                    module.program(source, say).await?
                }
            };
            found.push((source.name, path));
        }
        Ok(Self { found })
    }

    /// Path of kubeadm, of the same version; built if necessary.
    ///
    /// # Errors
    /// Fails if Go is missing or too old, or it cannot be built.
    pub async fn kubeadm(say: &dyn Fn(&str)) -> Result<PathBuf, HarnessError> {
        let kubeadm = native("kubeadm", "k8s.io/kubernetes/cmd/kubeadm");
        go_programs()?.program(&kubeadm, say).await
    }

    /// Checks early that the binaries exist or can be built.
    ///
    /// # Errors
    /// Fails if Go is missing or too old.
    pub async fn can_be_had() -> Result<(), HarnessError> {
        let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let cache = cache_dir()?;
        let there = |source: &GoProgram| {
            let given = assets.as_deref().and_then(|dir| given(dir, source.name));
            given.is_some() || cache.join(source.name).is_file()
        };
        if SOURCES.iter().all(there) {
            return Ok(());
        }
        go_module::installed_go().await
    }

    /// Path of a program.
    ///
    /// # Errors
    /// Fails for an unknown program name.
    pub fn path(&self, name: &str) -> Result<&Path, HarnessError> {
        let found = self.found.iter().find(|(known, _)| *known == name);
        let path = found.map(|(_, path)| path.as_path());
        path.ok_or_else(|| HarnessError::NoProgram {
            name: name.to_owned(),
        })
    }
}

/// Cache directory of the built programs.
///
/// # Errors
/// Fails if the module's files cannot be read.
pub fn cache_dir() -> Result<PathBuf, HarnessError> {
    go_module::cache_dir("controlplane", &module_dir(), &[])
}

fn given(assets: &Path, name: &str) -> Option<PathBuf> {
    let there = assets.join(name);
    if there.is_file() {
        return Some(there);
    }
    machine::program(name)
}

fn module_dir() -> PathBuf {
    machine::workspace().join("tests/controlplane")
}

fn go_programs() -> Result<GoModule, HarnessError> {
    GoModule::open("controlplane", &module_dir(), &[], ANNOUNCEMENT)?.with_kubernetes_version()
}
