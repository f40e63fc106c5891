//! Objects that pods refer to, tokens, and Services.

use std::fs;
use std::time::Duration;

use polylet_e2e::ok;
use polylet_harness::Cluster;
use polylet_wire::common::v1::PodRef;
use polylet_wire::podconfig::v1::{
    IssueTokenRequest, WatchServicesRequest, watch_services_response,
};
use serde_json::json;
use tokio::time::{Instant, timeout};

use super::service::{ObjectState, Service, TIMEOUT, next_state};
use super::{MAPS, PODS, SECRETS, create, delete, map, merge, pod};

pub(crate) async fn objects(cluster: &Cluster, service: &Service) {
    let mut stream = service.object("ConfigMap", "default", "web-map").await;
    assert_eq!(next_state(&mut stream).await, ObjectState::Absent);
    create(cluster, MAPS, &map("web-map", "1")).await;
    let value = |state: ObjectState| match state {
        ObjectState::Manifest(map) => map["data"]["key"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(value(next_state(&mut stream).await), "1");
    let started = Instant::now();
    let at = format!("{MAPS}/web-map");
    merge(cluster, &at, json!({ "data": { "key": "2" } })).await;
    assert_eq!(value(next_state(&mut stream).await), "2");
    println!(
        "ConfigMap patched → received: {} ms",
        started.elapsed().as_millis()
    );
    assert!(started.elapsed() < Duration::from_secs(1));
    delete(cluster, &at).await;
    assert_eq!(next_state(&mut stream).await, ObjectState::Absent);

    // No pod of this node refers to it: the server's refusal is passed on.
    create(
        cluster,
        SECRETS,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "other" },
        }),
    )
    .await;
    let mut other = service.object("Secret", "default", "other").await;
    match next_state(&mut other).await {
        ObjectState::Unknown(message) => assert!(message.contains("forbidden"), "{message}"),
        state => panic!("{state:?}"),
    }
    // Objects of a pod that has just been bound can be read at once.
    create(
        cluster,
        SECRETS,
        &json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "now-secret" },
            "immutable": true, "stringData": { "k": "v" },
        }),
    )
    .await;
    create(cluster, PODS, &pod("now")).await;
    let started = Instant::now();
    let mut now = service.object("Secret", "default", "now-secret").await;
    match next_state(&mut now).await {
        ObjectState::Manifest(secret) => assert_eq!(secret["data"]["k"], "dg=="),
        state => panic!("{state:?}"),
    }
    println!(
        "Secret of a pod just bound → received: {} ms",
        started.elapsed().as_millis()
    );
    let (requests, _) = ok(cluster.requests(0));
    let watches = requests.iter().map(|request| request.line());
    let watches: Vec<String> = watches.filter(|line| line.contains("now-secret")).collect();
    assert!(
        watches.iter().all(|line| line.starts_with("get")),
        "{watches:?}"
    );

    let runtime = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
        "metadata": { "name": "sandboxed" }, "handler": "h",
    });
    let mut class = service.object("RuntimeClass", "", "sandboxed").await;
    assert_eq!(next_state(&mut class).await, ObjectState::Absent);
    create(cluster, "/apis/node.k8s.io/v1/runtimeclasses", &runtime).await;
    match next_state(&mut class).await {
        ObjectState::Manifest(class) => assert_eq!(class["handler"], "h"),
        state => panic!("{state:?}"),
    }
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": { "name": "d.io" },
        "spec": { "attachRequired": false },
    });
    create(cluster, "/apis/storage.k8s.io/v1/csidrivers", &driver).await;
    let mut driver = service.object("CSIDriver", "", "d.io").await;
    assert!(matches!(
        next_state(&mut driver).await,
        ObjectState::Manifest(_)
    ));
    let mut bundle = service.object("ClusterTrustBundle", "", "bundle").await;
    assert_eq!(next_state(&mut bundle).await, ObjectState::Absent);
    let object = json!({
        "apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": { "name": "bundle" },
        "spec": { "trustBundle": ok(fs::read_to_string(cluster.authority())) },
    });
    let bundles = "/apis/certificates.k8s.io/v1beta1/clustertrustbundles";
    create(cluster, bundles, &object).await;
    assert!(matches!(
        next_state(&mut bundle).await,
        ObjectState::Manifest(_)
    ));
}

pub(crate) async fn polled_objects(cluster: &Cluster, service: &Service) {
    let mut claim = service
        .object("PersistentVolumeClaim", "default", "web-claim")
        .await;
    assert_eq!(next_state(&mut claim).await, ObjectState::Absent);
    let object = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": "web-claim" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "web-volume",
            "resources": { "requests": { "storage": "1Mi" } },
        },
    });
    let at = "/api/v1/namespaces/default/persistentvolumeclaims";
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "web-volume" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "capacity": { "storage": "1Mi" }, "hostPath": { "path": "/tmp" },
            "claimRef": { "namespace": "default", "name": "web-claim" },
        },
    });
    create(cluster, "/api/v1/persistentvolumes", &volume).await;
    create(cluster, at, &object).await;
    loop {
        match next_state(&mut claim).await {
            ObjectState::Manifest(claim) if claim["status"]["phase"] == "Bound" => break,
            ObjectState::Manifest(_) => {}
            state => panic!("{state:?}"),
        }
    }
    let mut account = service.object("ServiceAccount", "default", "default").await;
    println!("the pod's account: {:?}", next_state(&mut account).await);
    let mut volume = service.object("PersistentVolume", "", "web-volume").await;
    assert!(matches!(
        next_state(&mut volume).await,
        ObjectState::Manifest(_)
    ));
}

pub(crate) async fn tokens_and_services(cluster: &Cluster, service: &Service) {
    let web = ok(cluster.client().get(&format!("{PODS}/web")).await).unwrap();
    let request = IssueTokenRequest {
        pod: Some(PodRef {
            uid: web["metadata"]["uid"].as_str().unwrap().to_owned(),
            namespace: "default".to_owned(),
            name: "web".to_owned(),
        }),
        service_account: "default".to_owned(),
        audiences: Vec::new(),
        expiration_seconds: 3607,
    };
    let mut client = service.objects().await;
    let first = client
        .issue_token(request.clone())
        .await
        .unwrap()
        .into_inner();
    let second = client
        .issue_token(request.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(first == second, "another token was issued");
    let lifetime = first.expires_at.unwrap().seconds - first.refresh_at.unwrap().seconds;
    assert!((700..800).contains(&lifetime), "{lifetime}");
    let mut other = request.clone();
    other.audiences = vec!["vault".to_owned()];
    let vault = client
        .issue_token(other.clone())
        .await
        .unwrap()
        .into_inner();
    assert!(vault.token != first.token);
    other.pod.as_mut().unwrap().uid = "another".to_owned();
    let refused = client.issue_token(other).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    let state_files =
        ["api.json", "objects.json", "node.json"].map(|name| service.state_file(name));
    assert!(!state_files.concat().contains(&first.token) && !service.log().contains(&first.token));

    let stream = client.watch_services(WatchServicesRequest::default()).await;
    let mut stream = stream.unwrap().into_inner();
    let services = "/api/v1/namespaces/default/services";
    for (name, ip) in [("headless", json!("None")), ("shop", json!("10.96.7.7"))] {
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "clusterIP": ip, "ports": [{ "name": "http", "port": 80 }] },
        });
        create(cluster, services, &object).await;
    }
    loop {
        let message = timeout(TIMEOUT, stream.message())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        match message.change.unwrap() {
            watch_services_response::Change::Upsert(service) if service.name == "shop" => {
                assert_eq!(service.cluster_ip, "10.96.7.7");
                assert_eq!(
                    (service.ports[0].port, service.ports[0].name.as_str()),
                    (80, "http")
                );
                break;
            }
            watch_services_response::Change::Upsert(service) => {
                assert_ne!(service.name, "headless");
            }
            _ => {}
        }
    }
}

/// More watches than one connection carries.
pub(crate) async fn many_objects(cluster: &Cluster, service: &Service) {
    const MANY: usize = 300;
    let mut many = pod("many");
    let volumes = (0..MANY)
        .map(|n| json!({ "name": format!("v{n}"), "configMap": { "name": format!("many-{n}") } }));
    many["spec"]["volumes"] = volumes.collect();
    create(cluster, PODS, &many).await;
    let mut streams = Vec::new();
    for n in 0..MANY {
        streams.push(
            service
                .object("ConfigMap", "default", &format!("many-{n}"))
                .await,
        );
    }
    for stream in &mut streams {
        loop {
            match next_state(stream).await {
                ObjectState::Absent => break,
                ObjectState::Unknown(_) => {}
                state => panic!("{state:?}"),
            }
        }
    }
    for n in [0, MANY - 1] {
        create(cluster, MAPS, &map(&format!("many-{n}"), "x")).await;
        assert!(matches!(
            next_state(&mut streams[n]).await,
            ObjectState::Manifest(_)
        ));
    }
    let status = fs::read_to_string(format!("/proc/{}/smaps_rollup", service.pid())).unwrap();
    let memory = status.lines().filter(|line| line.starts_with("Pss"));
    let memory: Vec<&str> = memory.collect();
    println!("with {MANY} watches: {memory:?}");
}
