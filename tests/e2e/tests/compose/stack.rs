use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use polylet_e2e::ok;
use polylet_harness::{
    DockerEngine, HarnessError, Node, ObservabilityPrograms, containerd, machine, node,
};
use serde_json::{Value, json};

/// The images of the services.
const IMAGE: &str = "polylet:test";
const NEXT_IMAGE: &str = "polylet:next";
/// Those that are not ours, under the names of the stack.
const COLLECTOR: &str = "otel/opentelemetry-collector:0.140.0";
const VIEWER: &str = "jaegertracing/jaeger:2.13.0";
/// `CAP_SYS_RESOURCE`, which some virtual machines and containers lack.
const SYS_RESOURCE: u64 = 1 << 24;

/// The runtime's socket under a name where the stack does not look for it.
const HIDDEN: &str = "hidden.sock";

/// The stack of `compose/`, with the directories of a node.
pub(crate) struct Stack {
    engine: DockerEngine,
    files: Vec<PathBuf>,
    environment: Mutex<Vec<(String, String)>>,
    scratch: PathBuf,
    viewer_port: u16,
}

impl Stack {
    /// Starts Docker, builds all images and prepares the node's directories. The runtime's socket is not yet
    /// where the stack looks for it.
    pub(crate) async fn build(node: &Node, programs: &ObservabilityPrograms) -> Self {
        let engine = ok(DockerEngine::start(node, &|line| eprintln!("{line}")).await);
        ok(engine.image_of_program(COLLECTOR, &programs.collector));
        ok(engine.image_of_program(VIEWER, &programs.viewer));
        let scratch = node.scratch().to_owned();
        build_image(&engine, node);
        prepare_directories(node);
        let viewer_port = ok(machine::free_port());
        let mut files = vec![source().join("compose.yaml")];
        let mut stack = Self {
            environment: Mutex::new(environment(node, viewer_port)),
            engine,
            files: files.clone(),
            scratch,
            viewer_port,
        };
        if lacks_sys_resource() {
            files.push(stack.without_sys_resource());
            stack.files = files;
        }
        stack
    }

    /// Runs `docker compose`.
    pub(crate) fn compose(&self, args: &[&str]) -> Result<String, HarnessError> {
        let environment = self.environment.lock().unwrap();
        self.engine.compose(&self.files, &environment, args)
    }

    /// The port of the trace viewer.
    pub(crate) fn viewer_port(&self) -> u16 {
        self.viewer_port
    }

    /// Where the stack looks for the runtime's socket.
    pub(crate) fn runtime_socket(&self) -> PathBuf {
        self.scratch.join("runtime/containerd.sock")
    }

    /// Puts the runtime's socket there.
    pub(crate) fn show_runtime(&self) {
        let socket = self.runtime_socket();
        fs::rename(socket.with_file_name(HIDDEN), socket).unwrap();
    }

    /// Writes a manifest.
    pub(crate) fn put(&self, name: &str, text: &str) {
        let aside = self.scratch.join("aside").join(name);
        fs::write(&aside, text).unwrap();
        fs::rename(&aside, self.manifests().join(name)).unwrap();
    }

    /// Removes a manifest.
    pub(crate) fn take(&self, name: &str) {
        fs::remove_file(self.manifests().join(name)).unwrap();
    }

    fn manifests(&self) -> PathBuf {
        self.scratch.join("kubernetes/manifests")
    }

    /// The containers of the stack by service.
    pub(crate) fn container_ids(&self) -> BTreeMap<String, String> {
        let format = "{{.Label \"com.docker.compose.service\"}} {{.ID}}";
        let lines = ok(self
            .engine
            .docker(["ps", "--all", "--no-trunc", "--format", format]));
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        pairs
            .map(|(service, id)| (service.to_owned(), id.to_owned()))
            .collect()
    }

    /// Upgrades one service to another image, as compose/README.md says.
    pub(crate) fn upgrade(&self, service: &str, variable: &str) {
        let dir = self.scratch.join("next");
        fs::create_dir_all(&dir).unwrap();
        let recipe = format!("FROM {IMAGE}\nLABEL version=next\n");
        fs::write(dir.join("Dockerfile"), recipe).unwrap();
        let dir = dir.display().to_string();
        ok(self
            .engine
            .docker(["build", "--quiet", "--tag", NEXT_IMAGE, &dir]));
        let set = (variable.to_owned(), NEXT_IMAGE.to_owned());
        self.environment.lock().unwrap().push(set);
        ok(self.compose(&["up", "--detach", "--no-build", "--no-deps", service]));
    }

    /// Stops Docker.
    pub(crate) fn finish(self) {}

    /// An additional file that does without `CAP_SYS_RESOURCE`, which Docker cannot give here.
    fn without_sys_resource(&self) -> PathBuf {
        let text = ok(self.compose(&["config", "--format", "json"]));
        let config: Value = serde_json::from_str(&text).unwrap();
        let service = &config["services"]["volume-manager"];
        let others = |key: &str| -> Vec<Value> {
            let all = service[key].as_array().unwrap().iter();
            all.filter(|one| *one != "SYS_RESOURCE").cloned().collect()
        };
        let path = self.scratch.join("override.yaml");
        let text = format!(
            "services:\n  volume-manager:\n    cap_add: !override {}\n    command: !override {}\n",
            json!(others("cap_add")),
            json!(others("command"))
        );
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let logs = self.compose(&["logs", "--no-color"]).unwrap_or_default();
            eprintln!("{logs}");
        }
        // Fails only if nothing has been started.
        let _ = self.compose(&["down"]);
    }
}

fn source() -> PathBuf {
    machine::workspace().join("compose")
}

fn lacks_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let bounds = status.lines().find_map(|line| line.strip_prefix("CapBnd:"));
    u64::from_str_radix(bounds.unwrap().trim(), 16).unwrap() & SYS_RESOURCE == 0
}

/// Builds the services' image as compose/README.md says, with the programs under test.
fn build_image(engine: &DockerEngine, node: &Node) {
    let context = node.scratch().join("context");
    for directory in ["image", "programs"] {
        fs::create_dir_all(context.join(directory)).unwrap();
    }
    for name in ["Dockerfile", ".dockerignore"] {
        fs::copy(source().join(name), context.join(name)).unwrap();
    }
    for entry in fs::read_dir(source().join("image")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap();
        fs::copy(&path, context.join("image").join(name)).unwrap();
    }
    let program = "programs/polylet-multicall";
    fs::copy(node.program("polylet-multicall"), context.join(program)).unwrap();
    let context = context.display().to_string();
    // Names of servers are looked up as on the host.
    ok(engine.docker(["build", "--network=host", "--tag", IMAGE, &context]));
}

/// Directories as a node has them, below one: what the stack mounts.
fn prepare_directories(node: &Node) {
    let scratch = node.scratch();
    for directory in [
        "etc",
        "runtime",
        "kubernetes/manifests",
        "kubelet/pods",
        "kubelet/pki",
        "kubelet/device-plugins",
    ] {
        fs::create_dir_all(scratch.join(directory)).unwrap();
    }
    // A directory of its own, as `/run/containerd` is. Linked before that is a mount point.
    let hidden = scratch.join("runtime").join(HIDDEN);
    fs::hard_link(containerd::socket(scratch), hidden).unwrap();
    for directory in ["kubelet", "runtime"] {
        ok(node::shared_mount(&scratch.join(directory)));
    }
    fs::rename(scratch.join("pki"), scratch.join("kubernetes/pki")).unwrap();
    let text = fs::read_to_string(node.config()).unwrap();
    let at = |path: &str| scratch.join(path).display().to_string();
    let text = text
        .replace(&at("manifests"), &at("kubernetes/manifests"))
        .replace(&at("pki/"), &at("kubernetes/pki/"))
        .replace(&at("containerd.sock"), &at("runtime/containerd.sock"));
    // The commands of the test read the other file, which is equal to this one but for these paths.
    fs::write(scratch.join("etc/config.yaml"), text).unwrap();
}

fn environment(node: &Node, viewer_port: u16) -> Vec<(String, String)> {
    let dirs = node.dirs();
    let scratch = node.scratch();
    let path = |path: &Path| path.display().to_string();
    let port = || ok(machine::free_port()).to_string();
    let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    [
        ("POLYLET_IMAGE", IMAGE.to_owned()),
        // Lower scores than one's own need a privilege that test machines may lack.
        ("POLYLET_OOM_SCORE_ADJ", "0".to_owned()),
        (
            "POLYLET_OPEN_FILES",
            open_files
                .map_or(1_000_000, |limit| limit.min(1_000_000))
                .to_string(),
        ),
        ("POLYLET_HEALTH_INTERVAL", "2s".to_owned()),
        ("POLYLET_CONFIG_DIRECTORY", path(&scratch.join("etc"))),
        (
            "POLYLET_KUBERNETES_DIRECTORY",
            path(&scratch.join("kubernetes")),
        ),
        ("POLYLET_RUNTIME_DIRECTORY", path(&scratch.join("runtime"))),
        ("POLYLET_IMAGES_DIRECTORY", path(&scratch.join("root"))),
        ("POLYLET_RUN_DIRECTORY", path(&dirs.run)),
        ("POLYLET_STATE_DIRECTORY", path(&dirs.state)),
        ("POLYLET_ROOT_DIRECTORY", path(&dirs.root)),
        (
            "POLYLET_DEVICE_PLUGIN_DIRECTORY",
            path(&dirs.device_plugins),
        ),
        ("POLYLET_POD_LOGS_DIRECTORY", path(&dirs.logs)),
        ("POLYLET_CONTAINER_LOGS_DIRECTORY", path(&dirs.links)),
        ("POLYLET_TRACES_PORT", viewer_port.to_string()),
        ("POLYLET_TRACES_GRPC_PORT", port()),
        ("POLYLET_OTLP_PORT", port()),
        ("POLYLET_VIEWER_OTLP_PORT", port()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}
