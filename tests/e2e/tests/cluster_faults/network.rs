//! Servers that do not answer and clients that ask too much.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use polylet_e2e::{RUNS, ok};
use polylet_harness::Node;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::task::JoinHandle;

use crate::faulty_node::{FaultyNode, bound};

/// Clients that connect and send nothing.
const CLIENTS: usize = 256;
/// Pause of a client before it comes again.
const CLIENT_PAUSE: Duration = Duration::from_secs(5);
/// Pause between two requests with new tokens: 10,000 a minute.
const TOKEN_PAUSE: Duration = Duration::from_millis(6);

/// A task that is stopped on drop.
pub(crate) struct Background(JoinHandle<()>);

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A name server that receives questions and never answers.
pub(crate) struct SilentResolver {
    configuration: PathBuf,
    _socket: UdpSocket,
}

impl SilentResolver {
    pub(crate) async fn start(dir: &Path) -> Self {
        // Any loopback address will do that no resolver of the machine listens on.
        let address = "127.77.0.1";
        let socket = ok(UdpSocket::bind((address, 53)).await);
        let configuration = dir.join("resolv.conf");
        ok(fs::write(&configuration, format!("nameserver {address}\n")));
        Self {
            configuration,
            _socket: socket,
        }
    }

    /// The resolver configuration of the services.
    pub(crate) fn configuration(&self) -> PathBuf {
        self.configuration.clone()
    }
}

/// Pods whose probes and hooks use names without an answer.
pub(crate) async fn names_without_answer(node: &FaultyNode) {
    for number in 0..32 {
        let request = |prefix: &str| json!({ "host": format!("{prefix}-{number}.example"), "path": "/", "port": 80 });
        let mut container = json!({ "readinessProbe": { "httpGet": request("probe"),
            "periodSeconds": 1, "timeoutSeconds": 2 } });
        if number % 2 == 1 {
            container["lifecycle"] = json!({ "postStart": { "httpGet": request("hook") } });
        }
        let more = json!({ "container": container });
        let name = format!("unresolved-{number}");
        node.create(&bound(&name, RUNS, &more)).await;
    }
}

/// Pods whose exec probes never end by themselves.
pub(crate) async fn endless_commands(node: &FaultyNode) {
    for number in 0..24 {
        let endless = json!({ "exec": { "command": ["sh", "-c", "trap '' TERM; while :; do sleep 1; done"] },
            "periodSeconds": 1, "timeoutSeconds": if number % 2 == 0 { 2 } else { 600 } });
        let more = json!({ "container": { "readinessProbe": endless } });
        node.create(&bound(&format!("endless-{number}"), RUNS, &more))
            .await;
    }
}

/// A registry that sends a byte a second, and a pod with an image of it.
pub(crate) async fn trickling_registry(node: &FaultyNode) -> Background {
    let listener = ok(TcpListener::bind(("127.0.0.1", 0)).await);
    let port = ok(listener.local_addr()).port();
    let dir = node.node.containerd.registries().join("trickle.example");
    ok(fs::create_dir_all(&dir));
    let url = format!("http://127.0.0.1:{port}");
    let hosts =
        format!("server = \"{url}\"\n[host.\"{url}\"]\ncapabilities = [\"pull\", \"resolve\"]\n");
    ok(fs::write(dir.join("hosts.toml"), hosts));
    let serve = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(trickle(stream));
        }
    });
    let mut pod = bound("trickle", RUNS, &json!({}));
    pod["spec"]["containers"][0]["image"] = "trickle.example/app:1".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    node.create(&pod).await;
    Background(serve)
}

async fn trickle(mut stream: TcpStream) {
    let mut request = [0_u8; 4096];
    if stream.read(&mut request).await.is_err() {
        return;
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.oci.image.manifest.v1+json\r\n\
        Content-Length: 100000\r\n\r\n";
    for byte in head.bytes().chain(std::iter::repeat_n(b' ', 100_000)) {
        if stream.write_all(&[byte]).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Installs a network plugin that hangs for pods named `cni-hang`, until the fault is over.
pub(crate) fn install_cni_plugin(node: &Node) {
    let dir = node.scratch().join("cni-bin");
    ok(fs::create_dir_all(&dir));
    let script = dir.join("hang");
    let over = hang_over(node);
    let over = over.display();
    let text = format!(
        "#!/bin/sh\ncase \"$CNI_COMMAND:$CNI_ARGS\" in\n\
        ADD:*K8S_POD_NAME=cni-hang*) while [ ! -e {over} ]; do sleep 1; done ;;\n\
        ADD:*) echo '{{\"cniVersion\":\"0.4.0\"}}' ;;\n\
        VERSION:*) echo '{{\"cniVersion\":\"0.4.0\",\"supportedVersions\":[\"0.3.1\",\"0.4.0\"]}}' ;;\n\
        esac\nexit 0\n"
    );
    ok(fs::write(&script, text));
    let executable = fs::Permissions::from_mode(0o755);
    ok(fs::set_permissions(&script, executable));
    let path = node.scratch().join("cni/10-polylet.conflist");
    let mut network: Value = ok(serde_json::from_slice(&ok(fs::read(&path))));
    if let Some(plugins) = network["plugins"].as_array_mut() {
        plugins.insert(0, json!({ "type": "hang" }));
    }
    // In place: containerd reads it again after a write, but not after a rename.
    ok(fs::write(&path, network.to_string()));
}

/// The file whose existence ends the hang.
fn hang_over(node: &Node) -> PathBuf {
    node.scratch().join("cni-bin/over")
}

/// A file that is written on drop.
pub(crate) struct WrittenOnDrop(PathBuf);

impl Drop for WrittenOnDrop {
    fn drop(&mut self) {
        // Without it the plugin ends with the runtime.
        let _ = fs::write(&self.0, "");
    }
}

/// A pod whose network plugin hangs.
pub(crate) async fn hung_cni_plugin(node: &FaultyNode) -> WrittenOnDrop {
    node.start_pod("cni-hang").await;
    WrittenOnDrop(hang_over(&node.node))
}

/// Clients of the node API that say nothing: half of them before, half after the TLS handshake. Each
/// comes again when it is turned away.
pub(crate) async fn silent_clients(node: &FaultyNode) -> Vec<Background> {
    let (port, _) = node.node.ports();
    let tls = ok(node.node.pki().tls(true));
    let connector = tokio_rustls::TlsConnector::from(tls);
    let clients = (0..CLIENTS).map(|number| {
        let connector = connector.clone();
        Background(tokio::spawn(async move {
            loop {
                // Turned away, or not even accepted.
                let _ = stay_silent(port, (number % 2 == 1).then_some(&connector)).await;
                tokio::time::sleep(CLIENT_PAUSE).await;
            }
        }))
    });
    let clients = clients.collect();
    let answered = async {
        let health = "/api/v1/nodes/node/proxy/healthz";
        while node.cluster.client().text(health).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let limit = polylet_harness::wait::timeout();
    ok(tokio::time::timeout(limit, answered).await);
    clients
}

/// Connects, and sends nothing but a handshake. Returns when the server closes the connection.
async fn stay_silent(
    port: u16,
    connector: Option<&tokio_rustls::TlsConnector>,
) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let mut nothing = [0; 64];
    let Some(connector) = connector else {
        while stream.read(&mut nothing).await? > 0 {}
        return Ok(());
    };
    let name = rustls::pki_types::ServerName::from(std::net::IpAddr::from([127, 0, 0, 1]));
    let mut stream = connector.connect(name, stream).await?;
    while stream.read(&mut nothing).await? > 0 {}
    Ok(())
}

/// Requests with 10,000 different tokens a minute.
pub(crate) async fn token_flood(node: &FaultyNode) -> Background {
    let (port, _) = node.node.ports();
    let tls = ok(node.node.pki().tls(true));
    Background(tokio::spawn(async move {
        let mut pause = tokio::time::interval(TOKEN_PAUSE);
        for number in 0_u64.. {
            pause.tick().await;
            let tls = tls.clone();
            tokio::spawn(async move {
                let token = format!("eyJhbGciOiJub25lIn0.{number}.x");
                // Rejected, or not answered in time.
                let _ = polylet_harness::http::get_tls_as(tls, port, "/pods", &token).await;
            });
        }
    }))
}

/// Checks how many of the flood's tokens were sent to the API server: eight a second for one address.
pub(crate) async fn reviews_are_few(node: &FaultyNode) {
    let (requests, _) = ok(node.cluster.requests(0));
    let reviews = requests.iter().map(|request| request.line());
    let reviews = reviews.filter(|line| line.contains("tokenreviews")).count();
    println!("  {reviews} token reviews");
    assert!((1..2_000).contains(&reviews), "{reviews} token reviews");
}
