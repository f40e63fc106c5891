//! Cluster credentials of pods: trust bundles, pod certificates, image pulls with service account
//! tokens. Runs a real control plane; the test acts as the signer.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use polylet_e2e::steps::Steps;
use polylet_e2e::{cluster_with, node_with, ok, pod};
use polylet_harness::cluster::{Patch, pod_path};
use polylet_harness::{Cluster, ClusterOptions, Node};
use rcgen::{CertificateParams, Issuer, KeyPair, PublicKeyData, SignatureAlgorithm};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

#[path = "api_credentials/pulls.rs"]
mod pulls;

const PODS: &str = "/api/v1/namespaces/default/pods";
const EVENTS: &str = "/api/v1/namespaces/default/events";
const BUNDLES: &str = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
const REQUESTS: &str =
    "/apis/certificates.k8s.io/v1beta1/namespaces/default/podcertificaterequests";
const SIGNER: &str = "example.com/s";
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// A script that prints the pod's files and then runs until SIGTERM.
const SCRIPT: &str = "cd /creds && grep -q BEGIN ca.crt && test -e roots.crt && test ! -s roots.crt && \
    cat key.pem chain.pem | cmp - bundle.pem && head -n 1 key.pem | grep -q 'PRIVATE KEY' && \
    exec sleep 1000000";

#[tokio::test]
#[ignore = "needs root, containerd and the programs of a cluster: cargo verify"]
async fn trust_bundles_pod_certificates_and_service_account_image_pulls() {
    let mut steps = Steps::new();
    let kinds = ["clustertrustbundles", "podcertificaterequests"];
    let kinds = kinds.map(|kind| format!("certificates.k8s.io/v1beta1/{kind}=true"));
    let gates =
        "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true";
    let options = ClusterOptions {
        api_server: vec![
            format!("--feature-gates={gates}"),
            format!("--runtime-config={}", kinds.join(",")),
        ],
        ..ClusterOptions::default()
    };
    let cluster = cluster_with(&options).await;
    let plugin = tempfile::tempdir().unwrap();
    let mut of_node = ok(cluster.node_options("node"));
    for (key, value) in pulls::settings(plugin.path())
        .as_object()
        .into_iter()
        .flatten()
    {
        of_node.polylet[key] = value.clone();
    }
    let mut node = node_with(of_node).await;
    ok(cluster.wait_node_ready("node").await);
    let authority = Authority::new();
    steps
        .run(
            "pod certificate is issued",
            pod_certificate_is_issued(&cluster, &mut node, &authority),
        )
        .await;
    steps
        .run(
            "denied certificate is reported",
            denied_certificate_is_reported(&cluster),
        )
        .await;
    steps
        .run(
            "rsa certificates are issued",
            rsa_certificates_are_issued(&cluster, &authority),
        )
        .await;
    pulls::by_account(&cluster, &node, plugin.path()).await;
    for name in ["web", "denied", "rsa", "first", "second", "stranger"] {
        let now = json!({ "gracePeriodSeconds": 0 });
        ok(cluster.client().delete(&pod_path(name), &now).await);
        ok(cluster.wait_absent(&pod_path(name)).await);
    }
    steps.finish();
    ok(node.remove());
    ok(cluster.remove());
}

/// A pod waits for missing objects, starts once they exist, and sees later updates.
async fn pod_certificate_is_issued(cluster: &Cluster, node: &mut Node, authority: &Authority) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    let made = create(
        cluster,
        "web",
        SCRIPT,
        &json!([
            { "clusterTrustBundle": { "name": "late", "path": "ca.crt" } },
            { "clusterTrustBundle": { "signerName": SIGNER, "path": "roots.crt", "optional": true,
                "labelSelector": { "matchLabels": { "live": "yes" } } } },
            { "podCertificate": { "signerName": SIGNER, "keyType": "ECDSAP256",
                "maxExpirationSeconds": 7200, "credentialBundlePath": "bundle.pem",
                "keyPath": "key.pem", "certificateChainPath": "chain.pem" } },
        ]),
    )
    .await;
    let expected_message = "MountVolume.SetUp failed for volume \"creds\" : while getting ClusterTrustBundle: \
        clustertrustbundle.certificates.k8s.io \"late\" not found";
    loop {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        if event["reason"] == "FailedMount" && event["message"] == expected_message {
            break;
        }
    }
    bundle(cluster, "late", None, authority).await;
    let first = authority.issue(cluster, "web", None).await;
    ok(cluster.wait_pod_ready("web").await);

    // A later bundle of the signer reaches the file within a second.
    let uid = made["metadata"]["uid"].as_str().unwrap_or_default();
    let volume = node.dirs().root.join("pods").join(uid);
    let volume = volume.join("volumes/kubernetes.io~projected/creds");
    bundle(cluster, "example.com:s:one", Some(SIGNER), authority).await;
    let started = Instant::now();
    wait_for_file(volume.join("roots.crt"), |text| {
        text.contains("BEGIN CERTIFICATE")
    })
    .await;
    let took = started.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");

    // A restart loses the keys: the files stay until there is another certificate.
    let key = ok(fs::read_to_string(volume.join("key.pem")));
    ok(node.kill("pod-config").await);
    authority.issue(cluster, "web", Some(&first)).await;
    wait_for_file(volume.join("key.pem"), |text| {
        text != key && !text.is_empty()
    })
    .await;
    ok(cluster.wait_pod_ready("web").await);
    let log = ok(fs::read_to_string(node.log()));
    let secret = key.lines().nth(1).expect("a key has lines");
    assert!(!log.contains(secret), "the key is in the log");
}

/// A pod whose certificate is denied waits and reports why. The API server has verified the
/// request's signature, made by a P-521 key, which ring does not support.
async fn denied_certificate_is_reported(cluster: &Cluster) {
    let mut events = ok(cluster.client().watch(EVENTS).await);
    create(
        cluster,
        "denied",
        "sleep 1000000",
        &json!([
            { "podCertificate": { "signerName": SIGNER, "keyType": "ECDSAP521",
                "credentialBundlePath": "bundle.pem" } },
        ]),
    )
    .await;
    let (name, _) = next_request(cluster, "denied", None).await;
    let status = json!({ "status": { "conditions": [condition("Denied", "NotYou", "go away")] } });
    decide(cluster, &name, &status).await;
    let denied = format!(
        "PodCertificateRequest default/{name} was denied, reason=\"NotYou\", message=\"go away\""
    );
    let waits = "MountVolume.SetUp failed for volume \"creds\" : PodCertificateRequest was \
        permanently denied: reason=\"NotYou\" message=\"go away\"";
    let mut awaited = vec![("Denied", denied.as_str()), ("FailedMount", waits)];
    while !awaited.is_empty() {
        let (_, event) = ok(events.next().await).expect("an open watch of events");
        awaited.retain(|(reason, expected)| {
            event["reason"] != **reason || event["message"] != **expected
        });
    }
}

/// RSA keys of every size, which take long to generate.
async fn rsa_certificates_are_issued(cluster: &Cluster, authority: &Authority) {
    let script = "cd /creds && for size in 3072 4096; do \
        test $(grep -c 'PRIVATE KEY' $size.pem) = 2 && grep -q 'END CERTIFICATE' $size.pem || exit 1; \
        done; test $(wc -c < 4096.pem) -gt $(wc -c < 3072.pem) && exec sleep 1000000";
    let source = |size: u32| {
        json!({ "podCertificate": { "signerName": SIGNER, "keyType": format!("RSA{size}"),
            "credentialBundlePath": format!("{size}.pem") } })
    };
    create(cluster, "rsa", script, &json!([source(3072), source(4096)])).await;
    let first = authority.issue(cluster, "rsa", None).await;
    authority.issue(cluster, "rsa", Some(&first)).await;
    ok(cluster.wait_pod_ready("rsa").await);
}

async fn create(cluster: &Cluster, name: &str, script: &str, sources: &Value) -> Value {
    let more = json!({
        "volumes": [{ "name": "creds", "projected": { "sources": sources } }],
        "container": { "volumeMounts": [{ "name": "creds", "mountPath": "/creds" }] },
    });
    let mut made: Value = serde_json::from_str(&pod(name, script, &more)).unwrap();
    made["spec"]["nodeName"] = "node".into();
    ok(cluster.client().create(PODS, &made).await)
}

async fn bundle(cluster: &Cluster, name: &str, signer: Option<&str>, authority: &Authority) {
    let mut spec = json!({ "trustBundle": authority.pem });
    if let Some(signer) = signer {
        spec["signerName"] = signer.into();
    }
    let bundle = json!({ "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": name, "labels": { "live": "yes" } }, "spec": spec });
    ok(cluster.client().create(BUNDLES, &bundle).await);
}

/// Waits for the content of a file in a volume.
async fn wait_for_file(path: PathBuf, is_so: impl Fn(&str) -> bool) {
    let poll = async {
        while !fs::read_to_string(&path).is_ok_and(|text| is_so(&text)) {
            sleep(POLL_INTERVAL).await;
        }
    };
    let seen = timeout(TIMEOUT, poll).await;
    assert!(seen.is_ok(), "{} is not as expected", path.display());
}

/// The next request of a pod: its name and its stub PKCS #10 request.
async fn next_request(cluster: &Cluster, pod: &str, after: Option<&str>) -> (String, Vec<u8>) {
    let mut requests = ok(cluster.client().watch(REQUESTS).await);
    let poll = async {
        loop {
            let (_, request) = ok(requests.next().await).expect("an open watch of requests");
            let name = request["metadata"]["name"].as_str().unwrap_or_default();
            if request["spec"]["podName"] == pod && after != Some(name) {
                let stub = request["spec"]["stubPKCS10Request"].as_str();
                return (name.to_owned(), unbase64(stub.unwrap_or_default()));
            }
        }
    };
    timeout(TIMEOUT, poll).await.expect("a request is made")
}

async fn decide(cluster: &Cluster, name: &str, status: &Value) {
    let path = format!("{REQUESTS}/{name}/status");
    ok(cluster.client().patch(&path, Patch::Merge, status).await);
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": rfc3339(now()) })
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

/// Time stamps in the API's format.
fn rfc3339(second: u64) -> String {
    let mut params = CertificateParams::default();
    params.not_before = (UNIX_EPOCH + Duration::from_secs(second)).into();
    let at = params.not_before;
    let (date, time) = (at.date(), at.time());
    format!(
        "{date}T{:02}:{:02}:{:02}Z",
        time.hour(),
        time.minute(),
        time.second()
    )
}

fn unbase64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = text
        .bytes()
        .filter_map(|byte| DIGITS.iter().position(|it| *it == byte));
    let (mut bits, mut count, mut bytes) = (0_usize, 0, Vec::new());
    for digit in digits {
        bits = (bits << 6 | digit) & 0xffff;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

/// The signer's name.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// Public key of a stub request.
struct Public {
    bytes: Vec<u8>,
    algorithm: &'static SignatureAlgorithm,
}

impl Public {
    fn from_stub(stub: &[u8]) -> Self {
        // The end of the algorithm identifier and the start of the bit string.
        let point = (
            [0x03, 0x42, 0x00].as_slice(),
            &rcgen::PKCS_ECDSA_P256_SHA256,
        );
        let modulus = ([0x05, 0x00, 0x03, 0x82].as_slice(), &rcgen::PKCS_RSA_SHA256);
        let found = [point, modulus].into_iter().find_map(|(start, algorithm)| {
            let at = stub.windows(start.len()).position(|seen| seen == start)?;
            Some((&stub[at + start.len()..], algorithm))
        });
        let (bits, algorithm) = found.expect("a key in the request");
        let bytes = match std::ptr::eq(algorithm, &rcgen::PKCS_RSA_SHA256) {
            false => &bits[..65],
            // Its length, and no unused bits.
            true => &bits[3..2 + usize::from(bits[0]) * 256 + usize::from(bits[1])],
        };
        let bytes = bytes.to_vec();
        Self { bytes, algorithm }
    }
}

impl PublicKeyData for Public {
    fn der_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        self.algorithm
    }
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// Issues the pod's next request after the given one and returns its name.
    async fn issue(&self, cluster: &Cluster, pod: &str, after: Option<&str>) -> String {
        let (name, stub) = next_request(cluster, pod, after).await;
        let (from, to) = (now(), now() + 3600);
        let mut params = CertificateParams::default();
        params.not_before = (UNIX_EPOCH + Duration::from_secs(from)).into();
        params.not_after = (UNIX_EPOCH + Duration::from_secs(to)).into();
        let certificate = params
            .signed_by(&Public::from_stub(&stub), &self.issuer)
            .unwrap();
        let status = json!({ "status": {
            "conditions": [condition("Issued", "Issued", "here it is")],
            "certificateChain": format!("a note\n{}", certificate.pem()),
            "notBefore": rfc3339(from), "notAfter": rfc3339(to),
            "beginRefreshAt": rfc3339(from + 1800),
        } });
        decide(cluster, &name, &status).await;
        name
    }
}
