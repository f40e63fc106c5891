//! The environment of a container: variables, host names, resolv.conf, namespaces, ports.

use std::io::Read;
use std::net::TcpStream;
use std::time::Duration;
use std::{fs, path::Path};

use polylet_e2e::steps::Steps;
use polylet_e2e::{RUNS, exec, node_with, ok, pod};
use polylet_harness::wait::{Poll, until};
use polylet_harness::{Node, NodeOptions};
use serde_json::{Value, json};

const PORT: u16 = 18_090;

#[tokio::test]
#[ignore = "needs root, a container runtime and built services: cargo verify"]
async fn container_environment() {
    let mut steps = Steps::new();
    let node = node_with(NodeOptions {
        kubelet: json!({
            "clusterDNS": ["10.96.0.10"], "clusterDomain": "cluster.local",
            "systemReserved": { "cpu": "500m" },
        }),
        ..NodeOptions::default()
    })
    .await;
    objects(&node);
    ok(node.put("env.json", &env()));
    let names = names();
    for (name, fields, ..) in &names {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    let spaces = namespaces();
    for (name, fields, ..) in &spaces {
        ok(node.put(&format!("{name}.json"), &pod(name, RUNS, fields)));
    }
    ok(node.put("shared.json", &shared_process_namespace()));
    ok(node.put("served.json", &host_port_server()));

    steps
        .run("environment variables", environment_variables(&node))
        .await;
    for (name, _, script, expected) in &names {
        let pod = ok(node.wait_ready(name).await);
        let expected = expected.replace("<IP>", pod.ip());
        assert_eq!(
            exec(&node, &pod, "main", script).await,
            expected,
            "{name}: {script}"
        );
    }
    for (name, _, of_node) in &spaces {
        let pod = ok(node.wait_ready(name).await);
        for space in ["net", "pid", "ipc", "uts"] {
            let inside = exec(
                &node,
                &pod,
                "main",
                &format!("readlink /proc/self/ns/{space}"),
            )
            .await;
            let outside = fs::read_link(format!("/proc/self/ns/{space}")).unwrap();
            let same = Path::new(&inside) == outside;
            assert_eq!(same, of_node.contains(&space), "{name}: {space}");
        }
    }
    let pod = ok(node.wait_ready("shared").await);
    let processes = exec(&node, &pod, "main", "cat /proc/[0-9]*/comm | sort | uniq").await;
    assert!(processes.lines().any(|name| name == "tail"), "{processes}");
    steps
        .run("host port responds", host_port_responds(&node))
        .await;

    let all = names
        .iter()
        .map(|one| one.0)
        .chain(spaces.iter().map(|one| one.0));
    let all: Vec<&str> = all.chain(["env", "shared", "served"]).collect();
    for name in &all {
        ok(node.take(&format!("{name}.json")));
    }
    for name in &all {
        ok(node.wait_gone(name).await);
    }
    steps.finish();
    ok(node.remove());
}

fn objects(node: &Node) {
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "settings" },
        "data": { "color": "blue" },
    });
    ok(node.put("settings.json", &map.to_string()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "login" },
        "stringData": { "user": "me" },
        // The bytes ff fe 78, which are no text.
        "data": { "binary": "//54" },
    });
    ok(node.put("login.json", &secret.to_string()));
}

/// A pod with environment variables from every source; its init container writes an env file.
fn env() -> String {
    let from = |kind: &str, value: Value| json!({ kind: value });
    let field = |path: &str| from("fieldRef", json!({ "fieldPath": path }));
    let resource = |name: &str, divisor: &str| {
        from(
            "resourceFieldRef",
            json!({ "resource": name, "divisor": divisor }),
        )
    };
    let file = |key: &str, optional: bool| {
        from(
            "fileKeyRef",
            json!({ "volumeName": "v", "path": "vars", "key": key, "optional": optional }),
        )
    };
    let key = |name: &str, key: &str, optional: bool| json!({ "name": name, "key": key, "optional": optional });
    let mut vars = vec![
        json!({ "name": "PLAIN", "value": "a b" }),
        json!({ "name": "USES", "value": "$(PLAIN)-$(cm_color)-$(NONE)-$$(PLAIN)" }),
        json!({ "name": "cm_color", "value": "over" }),
    ];
    for (name, source) in [
        (
            "KEY",
            from("configMapKeyRef", key("settings", "color", false)),
        ),
        ("SECRET", from("secretKeyRef", key("login", "user", false))),
        (
            "BINARY",
            from("secretKeyRef", key("login", "binary", false)),
        ),
        (
            "NO_KEY",
            from("configMapKeyRef", key("settings", "absent", true)),
        ),
        (
            "NO_MAP",
            from("configMapKeyRef", key("absent", "key", true)),
        ),
        ("NAME", field("metadata.name")),
        ("NAMESPACE", field("metadata.namespace")),
        ("LABEL", field("metadata.labels['app']")),
        ("NODE", field("spec.nodeName")),
        ("POD_IP", field("status.podIP")),
        ("POD_IPS", field("status.podIPs")),
        ("HOST_IP", field("status.hostIP")),
        ("CPU_REQUEST", resource("requests.cpu", "1m")),
        ("CPU_LIMIT", resource("limits.cpu", "1m")),
        ("CPUS", resource("limits.cpu", "0")),
        ("MEMORY", resource("limits.memory", "1Mi")),
        ("NO_REQUEST", resource("requests.ephemeral-storage", "0")),
        ("FILE", file("FROM_FILE", false)),
        ("NO_FILE_KEY", file("ABSENT", true)),
    ] {
        vars.push(json!({ "name": name, "valueFrom": source }));
    }
    let mount = json!([{ "name": "v", "mountPath": "/v" }]);
    let fields = json!({
        "volumes": [{ "name": "v", "emptyDir": {} }],
        "initContainers": [{
            "name": "writes", "image": "polylet-test:1", "volumeMounts": mount,
            "command": ["sh", "-c", "echo \"FROM_FILE='written here'\" > /v/vars"],
        }],
        "container": {
            "env": vars,
            "envFrom": [
                { "prefix": "cm_", "configMapRef": { "name": "settings" } },
                { "secretRef": { "name": "login" } },
                { "configMapRef": { "name": "absent", "optional": true } },
            ],
            "resources": { "requests": { "cpu": "250m" }, "limits": { "memory": "64Mi" } },
            "args": ["--", "$(PLAIN)"],
        },
    });
    let mut pod: Value = serde_json::from_str(&pod("env", RUNS, &fields)).unwrap();
    pod["metadata"]["labels"] = json!({ "app": "shows" });
    pod.to_string()
}

async fn environment_variables(node: &Node) {
    let pod = ok(node.wait_ready("env").await);
    let text = exec(node, &pod, "main", "tr '\\0' '\\n' < /proc/1/environ").await;
    let found = |name: &str| {
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name}=")));
        line.map(|line| line[name.len() + 1..].to_owned())
    };
    let cpus = std::thread::available_parallelism().unwrap().get();
    let allocatable = cpus * 1000 - 500;
    for (name, expected) in [
        ("PLAIN", "a b"),
        ("USES", "a b-blue-$(NONE)-$(PLAIN)"),
        ("cm_color", "over"),
        ("user", "me"),
        ("KEY", "blue"),
        ("SECRET", "me"),
        ("NAME", "env-node"),
        ("NAMESPACE", "default"),
        ("LABEL", "shows"),
        ("NODE", "node"),
        ("POD_IP", pod.ip()),
        ("POD_IPS", pod.ip()),
        ("CPU_REQUEST", "250"),
        ("CPU_LIMIT", &allocatable.to_string()),
        ("CPUS", &allocatable.div_ceil(1000).to_string()),
        ("MEMORY", "64"),
        ("NO_REQUEST", "0"),
        ("FILE", "written here"),
    ] {
        assert_eq!(found(name).as_deref(), Some(expected), "{name}");
    }
    for name in ["NO_KEY", "NO_MAP", "NO_FILE_KEY"] {
        assert_eq!(found(name), None, "{name}");
    }
    let dump = "printf %s \"$BINARY\" | od -An -tx1 | tr -d ' \\n'";
    // The bytes reach the runtime, which writes them into the JSON of its OCI configuration: there, as
    // with the kubelet, each of them that is no text becomes U+FFFD.
    assert_eq!(exec(node, &pod, "main", dump).await, "efbfbdefbfbd78");
    let host = found("HOST_IP").and_then(|ip| ip.parse::<std::net::IpAddr>().ok());
    assert!(host.is_some(), "{text}");
    let arguments = exec(node, &pod, "main", "tr '\\0' ' ' < /proc/1/cmdline").await;
    assert!(arguments.ends_with("-- a b"), "{arguments}");
}

/// Pods, a script to run in them, and its expected output.
fn names() -> Vec<(&'static str, Value, &'static str, String)> {
    let resolver = "cat /etc/resolv.conf";
    let hosts = |lines: &str| {
        let head = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
             ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n\
             fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n";
        format!("{head}{lines}")
    };
    let own = |servers: &[&str], searches: &[&str]| {
        json!({ "dnsPolicy": "None", "dnsConfig": {
            "nameservers": servers, "searches": searches,
            "options": [{ "name": "ndots", "value": "2" }, { "name": "edns0" }] } })
    };
    let cluster = "search default.svc.cluster.local svc.cluster.local cluster.local";
    let cluster_search = "sed -n 's/^\\(search default.svc.cluster.local svc.cluster.local cluster.local\\).*/\\1/p; \
                          /^nameserver/p; /^options/p' /etc/resolv.conf";
    let from_node = fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let servers: Vec<&str> = from_node
        .lines()
        .filter(|line| line.starts_with("nameserver"))
        .take(3)
        .collect();
    vec![
        (
            "dns-cluster",
            json!({}),
            cluster_search,
            format!("{cluster}\nnameserver 10.96.0.10\noptions ndots:5"),
        ),
        (
            "dns-host-net",
            json!({ "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet" }),
            cluster_search,
            format!("{cluster}\nnameserver 10.96.0.10\noptions ndots:5"),
        ),
        (
            "dns-default",
            json!({ "dnsPolicy": "Default" }),
            "grep ^nameserver /etc/resolv.conf",
            servers.join("\n"),
        ),
        (
            "dns-none",
            own(&["10.0.0.1"], &["a.example", "b.example"]),
            resolver,
            "search a.example b.example\nnameserver 10.0.0.1\noptions ndots:2 edns0".to_owned(),
        ),
        (
            "dns-more",
            json!({ "dnsConfig": { "nameservers": ["10.0.0.1"],
                "options": [{ "name": "ndots", "value": "1" }] } }),
            "grep -v ^search /etc/resolv.conf",
            "nameserver 10.96.0.10\nnameserver 10.0.0.1\noptions ndots:1".to_owned(),
        ),
        (
            "hosts",
            json!({ "hostname": "web-1", "subdomain": "web", "hostAliases": [
                { "ip": "10.1.1.1", "hostnames": ["one", "uno"] }] }),
            "hostname; cat /etc/hosts",
            format!(
                "web-1\n{}",
                hosts(
                    "<IP>\tweb-1.web.default.svc.cluster.local\tweb-1\n\n\
                     # Entries added by HostAliases.\n10.1.1.1\tone\tuno"
                )
            ),
        ),
        (
            "fqdn",
            json!({ "hostname": "a", "subdomain": "b", "setHostnameAsFQDN": true }),
            "hostname",
            "a.b.default.svc.cluster.local".to_owned(),
        ),
        (
            "override",
            json!({ "hostnameOverride": "any.name" }),
            "hostname; cat /etc/hosts",
            format!("any.name\n{}", hosts("<IP>\tany.name")),
        ),
        (
            "host-hosts",
            json!({ "hostNetwork": true, "hostAliases": [{ "ip": "10.1.1.1", "hostnames": ["one"] }] }),
            "head -1 /etc/hosts; tail -1 /etc/hosts",
            "# Kubernetes-managed hosts file (host network).\n10.1.1.1\tone".to_owned(),
        ),
    ]
}

/// Pods and the namespaces they share with the node.
fn namespaces() -> Vec<(&'static str, Value, Vec<&'static str>)> {
    vec![
        ("spaces", json!({}), vec![]),
        ("host-pid", json!({ "hostPID": true }), vec!["pid"]),
        ("host-ipc", json!({ "hostIPC": true }), vec!["ipc"]),
        (
            "host-net",
            json!({ "hostNetwork": true }),
            vec!["net", "uts"],
        ),
    ]
}

/// Two containers with a shared process namespace.
fn shared_process_namespace() -> String {
    let mut pod: Value = serde_json::from_str(&pod(
        "shared",
        RUNS,
        &json!({ "shareProcessNamespace": true }),
    ))
    .unwrap();
    let other = json!({ "name": "other", "image": "polylet-test:1",
        "command": ["tail", "-f", "/dev/null"] });
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(other);
    pod.to_string()
}

/// A server behind a host port.
fn host_port_server() -> String {
    let fields = json!({ "container": { "ports": [{ "containerPort": 80, "hostPort": PORT }] } });
    let script = "while :; do nc -l -p 80 -e echo hello; done";
    pod("served", script, &fields)
}

/// The pod responds at its own address and at the host port.
async fn host_port_responds(node: &Node) {
    let pod = ok(node.wait_ready("served").await);
    let request = |host: &str, port: u16| -> std::io::Result<String> {
        let address = format!("{host}:{port}").parse().unwrap();
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    for (host, port) in [(pod.ip().to_owned(), 80), ("127.0.0.1".to_owned(), PORT)] {
        let poll = || async {
            match request(&host, port) {
                Ok(text) if text == "hello\n" => Poll::Ready(()),
                other => Poll::Pending(format!("{other:?}")),
            }
        };
        ok(until(format!("an answer at {host}:{port}"), poll).await);
    }
}
