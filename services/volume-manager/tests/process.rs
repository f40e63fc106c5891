//! The service as a process, over its socket, killed and restarted.

mod common;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Root, TIMEOUT, all_mounted, is_root, pod, run};
use hyper_util::rt::TokioIo;
use polylet_wire::common::v1::PodRef;
use polylet_wire::volume::v1::volume_service_client::VolumeServiceClient;
use polylet_wire::volume::v1::watch_pod_volumes_response::Change;
use polylet_wire::volume::v1::{
    ApplyPodRequest, CompleteDesiredRequest, PodVolumes, ReleasePodRequest, WatchPodVolumesRequest,
    WatchPodVolumesResponse,
};
use serde_json::json;
use tokio::net::UnixStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(root: &Root) -> Process {
    let dir = root.dir.path();
    let config = dir.join("config.yaml");
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\n\
         apiVersion: polylet.dev/v1alpha1\nkind: PolyletConfiguration\nnodeName: n\n\
         runDirectory: {0}/run\nstateDirectory: {0}/state\nrootDirectory: {0}\n",
        dir.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_polylet-volume-manager"));
    let command = command
        .arg("--config")
        .arg(config)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

async fn client(root: &Root) -> VolumeServiceClient<Channel> {
    let socket: PathBuf = root.dir.path().join("run/volume-manager.sock");
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move {
            for _ in 0..1000 {
                if let Ok(stream) = UnixStream::connect(&socket).await {
                    return Ok(TokioIo::new(stream));
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            UnixStream::connect(&socket).await.map(TokioIo::new)
        }
    });
    let endpoint = Endpoint::from_static("http://volume-manager");
    VolumeServiceClient::new(endpoint.connect_with_connector(connect).await.unwrap())
}

async fn apply(client: &mut VolumeServiceClient<Channel>, client_id: &str) {
    let volumes = json!([
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
        {"name": "linked", "hostPath": {"path": "/proc/self", "type": "Directory"}},
        {"name": "labels", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
        ]}},
    ]);
    let manifest = serde_json::to_vec(&pod("u1", volumes)).unwrap().into();
    let (r#ref, client_id) = (Some(pod_ref()), client_id.to_owned());
    let request = ApplyPodRequest {
        r#ref,
        sequence: 1,
        manifest,
        client_id,
        cause: None,
    };
    client.apply_pod(request).await.unwrap();
}

fn pod_ref() -> PodRef {
    PodRef {
        uid: "u1".into(),
        namespace: "ns".into(),
        name: "pod-u1".into(),
    }
}

async fn watch(client: &mut VolumeServiceClient<Channel>) -> Streaming<WatchPodVolumesResponse> {
    let request = WatchPodVolumesRequest { resume_after: None };
    client
        .watch_pod_volumes(request)
        .await
        .unwrap()
        .into_inner()
}

/// The next status of the pod; `None` when it is removed.
async fn next(stream: &mut Streaming<WatchPodVolumesResponse>) -> Option<PodVolumes> {
    loop {
        let message = tokio::time::timeout(TIMEOUT, stream.message());
        match message.await.unwrap().unwrap().unwrap().change {
            Some(Change::Upsert(pod)) => return Some(pod),
            Some(Change::Remove(_)) => return None,
            _ => {}
        }
    }
}

#[test]
fn a_restarted_process_continues_with_the_same_mounts() {
    if !is_root() {
        return;
    }
    run(async {
        let root = Root::new();
        let process = start(&root);
        let mut one = client(&root).await;
        let mut stream = watch(&mut one).await;
        apply(&mut one, "d").await;
        while !next(&mut stream).await.is_some_and(|pod| all_mounted(&pod)) {}
        let mounts = root.mounts();
        assert_eq!(mounts.len(), 2, "{mounts:?}");
        drop(process);

        let _process = start(&root);
        let mut two = client(&root).await;
        let mut stream = watch(&mut two).await;
        let shown = next(&mut stream).await.unwrap();
        assert!(all_mounted(&shown), "{shown:?}");
        apply(&mut two, "e").await;
        let done = CompleteDesiredRequest {
            client_id: "e".into(),
            pod_count: 1,
        };
        two.complete_desired(done).await.unwrap();
        let old = CompleteDesiredRequest {
            client_id: "e".into(),
            pod_count: 2,
        };
        let refused = two.complete_desired(old).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        assert_eq!(root.mounts(), mounts);

        // A late call of the superseded client: the current one has to take a new id.
        apply(&mut two, "d").await;
        let again = CompleteDesiredRequest {
            client_id: "e".into(),
            pod_count: 1,
        };
        let refused = two.complete_desired(again).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted);
        apply(&mut two, "e-1").await;
        assert_eq!(root.mounts(), mounts);

        let (r#ref, client_id) = (Some(pod_ref()), "e-1".to_owned());
        let release = ReleasePodRequest {
            r#ref,
            sequence: 2,
            client_id,
            cause: None,
        };
        two.release_pod(release).await.unwrap();
        while next(&mut stream).await.is_some() {}
        assert!(root.mounts().is_empty() && !root.pod("u1").exists());
    });
}
