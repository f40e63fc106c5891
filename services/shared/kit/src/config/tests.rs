use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

mod kubelet_fields;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
const OWN: &str = "apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\n";

fn parse(text: &str) -> Result<Config, ConfigError> {
    from_text(Path::new("config.yaml"), text)
}

fn refused(text: &str) -> String {
    parse(text).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn an_empty_file_has_all_defaults() {
    let config = parse("").unwrap();
    assert_eq!(config.kubelet.port, 10250);
    assert_eq!(config.kubelet.eviction_hard["memory.available"], "100Mi");
    assert_eq!(
        config.kubelet.node_status_report_frequency,
        Duration::from_secs(300)
    );
    assert_eq!(config.polylet.parallel_starts, None);
    assert!(config.warnings.is_empty());
}

#[test]
fn parallel_image_pulls_default_to_ten() {
    for (text, expected) in [
        ("", Some(10)),
        ("serializeImagePulls: true\n", Some(1)),
        ("serializeImagePulls: false\n", None),
        ("maxParallelImagePulls: 3\n", Some(3)),
        ("maxParallelImagePulls: 1\n", Some(1)),
        (
            "serializeImagePulls: false\nmaxParallelImagePulls: 4\n",
            Some(4),
        ),
    ] {
        let config = parse(&format!("{HEAD}{text}")).unwrap();
        assert_eq!(config.kubelet.parallel_image_pulls(), expected, "{text}");
    }
}

#[test]
fn negative_log_size_disables_rotation_and_zero_is_refused() {
    for (size, accepted) in [
        ("10Mi", true),
        ("-1", true),
        ("-1Mi", true),
        ("0", false),
        ("-0", false),
        ("--1", false),
        ("x", false),
    ] {
        let parsed = parse(&format!("{HEAD}containerLogMaxSize: '{size}'\n"));
        assert_eq!(parsed.is_ok(), accepted, "{size}");
    }
}

#[test]
fn reservations_are_validated_together() {
    for (text, error) in [
        ("qosReserved: {memory: 50%}\n", ""),
        ("qosReserved: {memory: '50'}\n", "qosReserved[memory]"),
        ("qosReserved: {memory: 101%}\n", "qosReserved[memory]"),
        ("qosReserved: {cpu: 10%}\n", "no such resource"),
        ("memoryReservationPolicy: TieredReservation\n", "MemoryQoS"),
        (
            "memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: true}\n",
            "",
        ),
        ("enforceNodeAllocatable: [pods, pods]\n", "listed twice"),
        (
            "enforceNodeAllocatable: [kube-reserved-compressible]\n",
            "kubeReservedCgroup",
        ),
        (
            "enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /k\n",
            "do not go together",
        ),
        (
            "reservedSystemCPUs: '0'\nkubeReservedCgroup: /k\n",
            "reservedSystemCPUs",
        ),
        ("systemCgroups: /s\n", "cgroupRoot"),
    ] {
        let text = format!("{HEAD}{text}");
        match error {
            "" => assert!(parse(&text).is_ok(), "{text}"),
            error => assert!(refused(&text).contains(error), "{text}"),
        }
    }
}

#[test]
fn credential_plugins_need_both_settings() {
    let file = format!("{OWN}imageCredentialProviderConfigFile: /etc/p.yaml\n");
    assert!(refused(&file).contains("imageCredentialProviderBinDir"));
    assert!(parse(&format!("{file}imageCredentialProviderBinDir: /opt/p\n")).is_ok());
}

#[test]
fn documents_may_come_in_any_order() {
    let kubelet = format!("{HEAD}syncFrequency: 1m30s\nclusterDNS: [10.0.0.10]\nmaxPods: null\n");
    let polylet = format!("{OWN}nodeName: n1\nrunDirectory: /run/x\n");
    for text in [
        format!("{kubelet}---\n{polylet}"),
        format!("---\n{polylet}---\n{kubelet}"),
    ] {
        let config = parse(&text).unwrap();
        assert_eq!(config.kubelet.sync_frequency, Duration::from_secs(90));
        assert_eq!(config.kubelet.max_pods, 110);
        assert_eq!(config.polylet.node_name, "n1");
        assert_eq!(config.polylet.run_directory, Path::new("/run/x"));
    }
}

#[test]
fn zero_is_the_default_where_upstream_defines_it() {
    let config = parse(&format!(
        "{HEAD}syncFrequency: 0s\nport: 0\nhealthzPort: 0\n"
    ))
    .unwrap();
    assert_eq!(config.kubelet.sync_frequency, Duration::from_secs(60));
    assert_eq!(config.kubelet.port, 10250);
    assert_eq!(config.kubelet.healthz_port, 0);
    let config = parse(&format!("{HEAD}nodeStatusUpdateFrequency: 5s\n")).unwrap();
    assert_eq!(
        config.kubelet.node_status_report_frequency,
        Duration::from_secs(5)
    );
    let config = parse(&format!("{HEAD}evictionHard: {{}}\n")).unwrap();
    assert!(config.kubelet.eviction_hard.is_empty());
    let text =
        format!("{HEAD}evictionHard: {{pid.available: 10%}}\nmergeDefaultEvictionSettings: true\n");
    assert_eq!(parse(&text).unwrap().kubelet.eviction_hard.len(), 6);
}

#[test]
fn unknown_fields_are_warnings_with_their_path() {
    let config = parse(&format!(
        "{HEAD}authentication: {{x509: {{caFile: /x}}}}\nnope: 1\n"
    ))
    .unwrap();
    assert_eq!(
        config.warnings,
        [
            "config.yaml: authentication.x509.caFile: no such field",
            "config.yaml: nope: no such field"
        ]
    );
}

#[test]
fn settings_of_traces_are_validated_as_upstream_does() {
    for (text, error) in [
        ("tracing: {}", ""),
        (
            "tracing: {endpoint: 'collector:4317', samplingRatePerMillion: 1000000}",
            "",
        ),
        ("tracing: {endpoint: 'unix:///run/otel.sock'}", ""),
        ("tracing: {endpoint: 'dns://8.8.8.8/collector:4317'}", ""),
        (
            "tracing: {samplingRatePerMillion: -1}",
            "tracing.samplingRatePerMillion: Invalid value: -1: sampling rate must be positive",
        ),
        (
            "tracing: {samplingRatePerMillion: 1000001}",
            "sampling rate per million must be less than or equal to one million",
        ),
        (
            "tracing: {endpoint: 'http://collector:4317'}",
            "tracing.endpoint: Invalid value: \"http://collector:4317\": unsupported scheme: http.  Options are none, dns",
        ),
    ] {
        let text = format!("{HEAD}{text}\n");
        match error {
            "" => assert!(parse(&text).unwrap().warnings.is_empty(), "{text}"),
            error => assert!(refused(&text).contains(error), "{text}: {}", refused(&text)),
        }
    }
    let own = "tracing: {receive: '127.0.0.1:4317', traceParent: parent, tailSampling: {errors: true, slowest: 5}}";
    let tracing = parse(&format!("{OWN}{own}\n")).unwrap().polylet.tracing;
    assert_eq!(tracing.trace_parent, TraceParent::Parent);
    assert!(tracing.tail_sampling.errors && tracing.tail_sampling.slowest == 5);
    let exposed = refused(&format!("{OWN}tracing: {{receive: '0.0.0.0:4317'}}\n"));
    assert!(
        exposed.contains("tracing.receive: 0.0.0.0:4317 is not allowed"),
        "{exposed}"
    );
}

#[test]
fn errors_name_field_value_and_allowed_values() {
    for (text, expected) in [
        (
            "port: 70000",
            "port: invalid value: integer `70000`, allowed are numbers from 0 to 65535",
        ),
        (
            "syncFrequency: 5",
            "syncFrequency: invalid type: integer `5`, expected a duration",
        ),
        ("syncFrequency: -5s", "syncFrequency: \"-5s\" is negative"),
        (
            "failSwapOn: maybe",
            "failSwapOn: invalid type: string \"maybe\", allowed are true",
        ),
        (
            "imageGCHighThresholdPercent: 101",
            "imageGCHighThresholdPercent: 101 is not allowed",
        ),
        (
            "imageGCLowThresholdPercent: 85",
            "imageGCLowThresholdPercent: 85 is not allowed",
        ),
        (
            "evictionHard: {memory.avail: 1Mi}",
            "evictionHard[memory.avail]: no such signal",
        ),
        (
            "evictionHard: {memory.available: -1Mi}",
            "evictionHard[memory.available]: \"-1Mi\"",
        ),
        (
            "evictionHard: {memory.available: 120%}",
            "not a percentage from 0% to 100%",
        ),
        (
            "evictionSoft: {memory.available: 1Gi}",
            "evictionSoftGracePeriod[memory.available]",
        ),
        (
            "cgroupDriver: x",
            "cgroupDriver: \"x\" is not allowed; allowed are cgroupfs, systemd",
        ),
        (
            "maxPods: -1",
            "maxPods: -1 is not allowed; allowed is 0 or more",
        ),
        (
            "address: here",
            "address: \"here\" is not allowed; allowed is an IP address",
        ),
        (
            "readOnlyPort: 10250",
            "readOnlyPort: 10250 is not allowed; port uses it already",
        ),
        (
            "authentication: {webhook: {cacheTTL: x}}",
            "authentication.webhook.cacheTTL: \"x\" is",
        ),
        ("clusterDNS: nine", "clusterDNS: invalid type: string"),
    ] {
        let refused = refused(&format!("{HEAD}{text}\n"));
        assert!(refused.contains(expected), "{text}: {refused}");
        assert!(refused.starts_with("config.yaml: "), "{refused}");
    }
    assert!(refused(&format!("{OWN}nodeName: A_b\n")).contains("nodeName: \"A_b\""));
    assert!(refused(&format!("{OWN}runDirectory: run\n")).contains("an absolute path"));
}

#[test]
fn invalid_documents_are_errors() {
    assert!(refused("kind: Pod\n").contains("kind: unknown kind \"Pod\""));
    assert!(refused("[1, 2]").contains("kind"));
    assert!(refused("apiVersion: v1\nkind: KubeletConfiguration\n").contains("apiVersion: \"v1\""));
    assert!(refused("a: [").contains("not YAML"));
    assert!(refused(&format!("{HEAD}---\n{HEAD}")).contains("more than one"));
    assert!(refused(&format!("{HEAD}port: 1\nport: 2\n")).contains("not YAML"));
}

#[test]
fn check_returns_all_errors() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.yaml");
    std::fs::write(
        &path,
        format!("{HEAD}nope: 1\nmaxPods: -1\noomScoreAdj: 5000\n"),
    )
    .unwrap();
    let fields: Vec<_> = check(&path)
        .into_iter()
        .map(|problem| problem.field)
        .collect();
    assert_eq!(fields, ["nope", "maxPods", "oomScoreAdj"]);
    assert_eq!(check(&dir.path().join("none.yaml")).len(), 1);
}

#[test]
fn serialized_configuration_is_parsed_back() {
    let config = KubeletConfiguration::default();
    let text = serde_json::to_string(&config).unwrap();
    assert_eq!(
        serde_json::from_str::<KubeletConfiguration>(&text).unwrap(),
        config
    );
}

proptest! {
    #[test]
    fn any_text_is_parsed_without_panic(text in "\\PC{0,200}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_value_is_parsed_without_panic(
        field in "(port|syncFrequency|evictionHard|clusterDNS|logging|address|maxPods|tracing)",
        value in "[-0-9a-z{}\\[\\]:,\"'%&*!|> ]{0,40}",
    ) {
        let _ = parse(&format!("{HEAD}{field}: {value}\n"));
    }
}

#[test]
fn reserved_cpus_replace_reserved_amounts() {
    let text = "reservedSystemCPUs: 0-1,4,1\nsystemReserved: {cpu: 100m, memory: 1Gi}\nkubeReserved: {cpu: '1', pid: '7'}\n";
    let kubelet = parse(&format!("{HEAD}{text}")).unwrap().kubelet;
    assert_eq!(kubelet.system_reserved["cpu"], "3");
    assert_eq!(kubelet.system_reserved["memory"], "1Gi");
    assert_eq!(kubelet.kube_reserved.len(), 1);
    let error = refused(&format!("{HEAD}reservedSystemCPUs: 3-1\n"));
    assert!(error.contains("reservedSystemCPUs"), "{error}");
}

#[test]
fn node_labels_are_validated_as_the_api_server_does() {
    const HEAD: &str = "apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\n";
    let with = |key: &str, value: &str| {
        parse(&format!("{HEAD}nodeLabels: {{'{key}': '{value}'}}\n")).map(|_| ())
    };
    let long = "a".repeat(64);
    for (key, value) in [
        ("a", ""),
        ("example.com/A_b.c", "x-1"),
        ("node.kubernetes.io/lifecycle", "spot"),
    ] {
        assert!(with(key, value).is_ok(), "{key}={value}");
    }
    for (key, value) in [
        ("-a", "b"),
        ("", "b"),
        ("a", "b c"),
        ("a", long.as_str()),
        ("Example.com/a", "b"),
        ("a/b/c", "d"),
        ("/a", "b"),
    ] {
        assert!(with(key, value).is_err(), "{key}={value}");
    }
}
