use serde_json::{Value, json};

use super::table::{FLAGS, FlagEffect};
use super::{FlagError, ParsedArgs, RunArgs, configuration, parse};

fn parsed(args: &str) -> Result<RunArgs, FlagError> {
    match parse(args.split_whitespace().map(str::to_owned))? {
        ParsedArgs::Run(parsed) => Ok(parsed),
        ParsedArgs::Help | ParsedArgs::Version => panic!("{args}: not a run"),
    }
}

fn config(args: &str) -> polylet_kit::Config {
    match configuration(parsed(args).unwrap()) {
        Ok(effective) => effective.config,
        Err(error) => panic!("{args}: {}", polylet_kit::report(&error)),
    }
}

fn error(args: &str) -> String {
    let result = parsed(args).and_then(configuration);
    match result {
        Err(error) => polylet_kit::report(&error),
        Ok(_) => panic!("{args}: accepted"),
    }
}

#[test]
fn every_flag_sets_an_existing_field() {
    let config = config("--max-pods=5");
    let documents = [
        serde_json::to_value(&config.kubelet).unwrap(),
        serde_json::to_value(&config.polylet).unwrap(),
    ];
    let mut names: Vec<_> = FLAGS.iter().map(|flag| flag.name).collect();
    for flag in &FLAGS {
        let (document, field) = match flag.effect {
            FlagEffect::Kubelet(field) | FlagEffect::Deprecated(field) => (&documents[0], field),
            FlagEffect::Polylet(field) => (&documents[1], field),
            _ => continue,
        };
        let pointer = format!("/{}", field.replace('.', "/"));
        assert!(
            document.pointer(&pointer).is_some(),
            "--{}: {field}",
            flag.name
        );
    }
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), FLAGS.len());
}

#[test]
fn kubeadm_unit_file_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
        clusterDNS: [10.96.0.10]\nmaxPods: 50\nstaticPodPath: manifests\nfeatureGates: {MemoryQoS: true, QOSReserved: true}\n";
    std::fs::write(&file, text).unwrap();
    let config = config(&format!(
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
         --config={} --container-runtime-endpoint=unix:///var/run/crio/crio.sock \
         --pod-infra-container-image=registry.k8s.io/pause:3.10 --node-ip=192.0.2.7,2001:db8::7 \
         --hostname-override Node-1 --node-labels=a=b --node-labels=c=d,e= --register-with-taints=k=v:NoSchedule,x:NoExecute \
         --feature-gates=QOSReserved=false --cluster_dns=10.0.0.1 --cluster-dns=10.0.0.2 --eviction-hard=memory.available<200Mi,nodefs.available<5% \
         --system-reserved=cpu=100m,memory=1Gi --client-ca-file=/etc/kubernetes/pki/ca.crt --rotate-certificates \
         --fail-swap-on=false --anonymous-auth=false -v 4 --node-status-update-frequency=5s",
        file.display()
    ));
    let (kubelet, polylet) = (&config.kubelet, &config.polylet);
    assert_eq!(
        polylet.kubeconfig,
        Some("/etc/kubernetes/kubelet.conf".into())
    );
    assert_eq!(polylet.node_name, "node-1");
    assert_eq!(polylet.secondary_node_ip, "2001:db8::7".parse().ok());
    assert_eq!(
        json!(polylet.node_labels),
        json!({"a": "b", "c": "d", "e": ""})
    );
    assert!(polylet.log_level.starts_with("debug,"));
    assert_eq!(kubelet.cluster_dns, ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(kubelet.max_pods, 50);
    assert_eq!(
        json!(kubelet.feature_gates),
        json!({"MemoryQoS": true, "QOSReserved": false})
    );
    assert_eq!(
        json!(kubelet.eviction_hard),
        json!({"memory.available": "200Mi", "nodefs.available": "5%"})
    );
    assert_eq!(kubelet.register_with_taints[1].effect, "NoExecute");
    assert_eq!(
        kubelet.authentication.x509.client_ca_file,
        "/etc/kubernetes/pki/ca.crt"
    );
    assert_eq!(kubelet.node_status_report_frequency.as_secs(), 5);
    assert!(kubelet.rotate_certificates && !kubelet.fail_swap_on);
    // Relative to the configuration file.
    assert_eq!(
        kubelet.static_pod_path,
        dir.path().join("manifests").to_string_lossy()
    );
    let warnings = config.warnings.join("\n");
    assert!(
        warnings.contains("--pod-infra-container-image is ignored"),
        "{warnings}"
    );
    assert!(
        warnings.contains("--cluster-dns is deprecated; set clusterDNS in the configuration file"),
        "{warnings}"
    );
    assert!(config.path.ends_with("supervisor/config.yaml"));
}

#[test]
fn drop_ins_are_sorted_and_flags_take_precedence() {
    let dir = tempfile::tempdir().unwrap();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (name, text) in [
        ("20-b.conf", "maxPods: 20\nclusterDNS: [10.0.0.2]\n"),
        (
            "10-a.conf",
            "maxPods: 10\nsystemReserved: {cpu: '1'}\nclusterDNS: [10.0.0.1]\n",
        ),
        ("30-c.conf", "systemReserved: {memory: 1Gi}\nport: 10260\n"),
        ("readme.txt", "nonsense"),
    ] {
        let text = if name.ends_with("conf") {
            format!("{head}{text}")
        } else {
            text.to_owned()
        };
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let config = config(&format!(
        "--config-dir={} --port=10261",
        dir.path().display()
    ));
    let kubelet = config.kubelet;
    assert_eq!((kubelet.max_pods, kubelet.port), (20, 10261));
    assert_eq!(kubelet.cluster_dns, ["10.0.0.2"]);
    assert_eq!(
        json!(kubelet.system_reserved),
        json!({"cpu": "1", "memory": "1Gi"})
    );
}

#[test]
fn errors_name_flag_and_value() {
    for (args, expected) in [
        (
            "--kubeconf=/x",
            "unknown flag --kubeconf; did you mean --kubeconfig?",
        ),
        ("--totally-different=1", "unknown flag --totally-different"),
        (
            "--max-pods=many",
            "--max-pods=many: expected a whole number",
        ),
        ("--max-pods", "--max-pods requires a value"),
        ("--fail-swap-on=perhaps", "expected true or false"),
        (
            "--eviction-hard=memory.available=1",
            "expected comma-separated key<value",
        ),
        ("--register-with-taints=a", "expected key=value:Effect"),
        ("--node-ip=10.0.0.1,10.0.0.2", "one of each family"),
        ("start", "unexpected argument \"start\""),
        ("--eviction-hard=memori<1", "evictionHard[memori]"),
        (
            "--node-labels=node-role.kubernetes.io/worker=",
            "nodeLabels[node-role.kubernetes.io/worker]",
        ),
        ("--cloud-provider=aws", "cloudProvider"),
        ("--config=/nowhere/config.yaml", "/nowhere/config.yaml"),
    ] {
        let message = error(args);
        assert!(message.contains(expected), "{args}: {message}");
    }
}

#[test]
fn effective_configuration_round_trips() {
    let effective =
        configuration(parsed("--node-labels=a=b --tls-min-version=VersionTLS13").unwrap()).unwrap();
    let text = effective.text.unwrap();
    let again = polylet_kit::config::from_text(&effective.config.path, &text).unwrap();
    assert_eq!(again.kubelet, effective.config.kubelet);
    assert_eq!(again.polylet, effective.config.polylet);
    assert_eq!(again.warnings, Vec::<String>::new());
    assert_ne!(json!(again.kubelet), Value::Null);
}

#[test]
fn empty_variables_of_a_unit_file_are_unset() {
    let plain = config("--max-pods=110");
    for args in [
        "--hostname-override=",
        "--kubeconfig= --bootstrap-kubeconfig=",
        "--config= --config-dir= --max-pods=110",
        "--cert-dir= --root-dir= --cloud-provider=",
        "--image-credential-provider-config= --image-credential-provider-bin-dir=",
        "--node-ip= --node-labels= --register-with-taints=",
        "--kubeconfig=/a --kubeconfig=",
        "--version=false --max-pods=110",
    ] {
        let config = config(args);
        assert_eq!(config.polylet, plain.polylet, "{args}");
        assert_eq!(config.kubelet, plain.kubelet, "{args}");
    }
    let config = config("--kubeconfig= --kubeconfig=/a");
    assert_eq!(config.polylet.kubeconfig, Some("/a".into()));
}

#[test]
fn unspecified_address_selects_the_family() {
    for (args, ip) in [("--node-ip=::", "::"), ("--node-ip=0.0.0.0", "0.0.0.0")] {
        assert_eq!(config(args).polylet.node_ip, ip.parse().ok());
    }
    assert!(error("--node-ip=0.0.0.0,::").contains("unspecified"));
}
