use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures::FutureExt;
use polylet_cri::v1;
use polylet_kit::subprocess::SubprocessError;
use polylet_walk::DiskUsage;
use polylet_wire::common::v1::PodRef;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use super::super::disk::{DiskChildren, DiskUsages, MeasurementFuture};
use super::super::writable_layers::UNKNOWN;
use super::*;
use crate::core::pods::{PodUsageSpec, RunningContainer, RuntimePod};
use crate::core::rank::rank;
use crate::sample::cgroup::tests::directory;
use crate::sample::disk_usage::{DiskUsageTask, MountedSpaceTask, PathUsage, PodDiskUsage};
use crate::sample::filesystem::Filesystem;

const GI: u64 = 1 << 30;

/// Sizes of writable layers by container id.
type LayerBytes = Vec<(&'static str, u64)>;

/// A runtime that knows writable layers alone. `None` while it fails.
#[derive(Clone, Default)]
struct FakeRuntime(Arc<Mutex<Option<LayerBytes>>>);

impl UnaryService<v1::ListContainerStatsRequest> for FakeRuntime {
    type Response = v1::ListContainerStatsResponse;
    type Future = BoxFuture<Response<Self::Response>, Status>;

    fn call(&mut self, _: Request<v1::ListContainerStatsRequest>) -> Self::Future {
        let layers = self.0.lock().unwrap().clone();
        let stats = |(id, bytes): (&str, u64)| v1::ContainerStats {
            attributes: Some(v1::ContainerAttributes {
                id: id.to_owned(),
                ..Default::default()
            }),
            writable_layer: Some(v1::FilesystemUsage {
                used_bytes: Some(v1::UInt64Value { value: bytes }),
                ..Default::default()
            }),
            ..Default::default()
        };
        Box::pin(async move {
            let layers = layers.ok_or_else(|| Status::unknown("no stats"))?;
            let stats = layers.into_iter().map(stats).collect();
            Ok(Response::new(v1::ListContainerStatsResponse { stats }))
        })
    }
}

impl NamedService for FakeRuntime {
    const NAME: &'static str = "runtime.v1.RuntimeService";
}

impl Service<http::Request<Body>> for FakeRuntime {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let runtime = self.clone();
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::default());
            Ok(grpc.unary(runtime, request).await)
        })
    }
}

/// Children that find these bytes in the only path of each pod.
struct FakeChildren(Vec<(&'static str, u64)>);

impl DiskChildren for FakeChildren {
    fn disk_usage(&self, _: DiskUsageTask, _: Option<String>) -> MeasurementFuture<DiskUsages> {
        let usage = |(uid, bytes): &(&str, u64)| {
            let path = PathUsage {
                usage: DiskUsage {
                    bytes: *bytes,
                    inodes: 1,
                },
                ..PathUsage::default()
            };
            let usage = PodDiskUsage {
                paths: vec![Some(path)],
                ..PodDiskUsage::default()
            };
            ((*uid).to_owned(), usage)
        };
        let usages = self.0.iter().map(usage).collect();
        std::future::ready(Ok(usages)).boxed_local()
    }

    fn mounted_space(
        &self,
        _: MountedSpaceTask,
        _: String,
    ) -> MeasurementFuture<Result<Filesystem, String>> {
        std::future::ready(Err(SubprocessError::Busy)).boxed_local()
    }

    fn warn(&self, _: &PodRef, _: &'static str, _: &str) {}
}

/// Measures the pods of a node below `root`: cgroups v2, and the runtime's socket.
fn sampler(root: &Path, children: FakeChildren) -> PodSampler {
    let conditions = HealthConditions::default();
    let socket = root.join("cri.sock");
    PodSampler {
        mounts: CgroupMounts::V2(root.to_owned()),
        runtime: RuntimeClient::connect(&socket.to_string_lossy(), Duration::from_secs(10)),
        paths: NodePaths {
            root: root.to_owned(),
            pod_logs: PathBuf::new(),
            pods_cgroup: Vec::new(),
            system_cgroups: Vec::new(),
            qos_cgroups: Vec::new(),
        },
        disk: DiskMeasurer::new(Rc::new(children), conditions.clone()),
        conditions,
    }
}

/// A running pod with one container, which has the same name.
fn pod(uid: &str) -> SampledPod {
    let spec = PodUsageSpec {
        name: uid.to_owned(),
        cgroups: vec![uid.to_owned()],
        ..PodUsageSpec::default()
    };
    let container = RunningContainer {
        id: uid.to_owned(),
        ..RunningContainer::default()
    };
    let pod = RuntimePod {
        running: vec![container],
        ..RuntimePod::default()
    };
    (uid.to_owned(), spec, pod)
}

#[tokio::test]
async fn no_pod_is_evicted_for_a_disk_while_its_writable_layers_are_unknown() {
    let node = directory(&[("files/memory.current", "1"), ("layer/memory.current", "1")]);
    let runtime = FakeRuntime::default();
    let listener = UnixListener::bind(node.path().join("cri.sock")).unwrap();
    let server = tonic::transport::Server::builder().add_service(runtime.clone());
    tokio::spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
    let sampler = sampler(node.path(), FakeChildren(vec![("files", GI), ("layer", 0)]));
    let first = async |signal, one_filesystem| {
        let pods = vec![pod("files"), pod("layer")];
        let candidates = sampler.candidates(pods, signal, one_filesystem).await?;
        let ranked = rank(&candidates, signal, one_filesystem);
        ranked.first().map(|pod| pod.uid.clone())
    };
    let is_impaired = || {
        let conditions = sampler.conditions.to_wire();
        conditions
            .iter()
            .any(|condition| condition.reason == UNKNOWN)
    };
    for (signal, one_filesystem, while_unknown, afterwards) in [
        (Signal::NodeFsAvailable, true, None, "layer"),
        (Signal::ImageFsAvailable, true, None, "layer"),
        (Signal::ImageFsAvailable, false, None, "layer"),
        (Signal::ContainerFsAvailable, false, None, "layer"),
        // Layers are elsewhere.
        (Signal::NodeFsAvailable, false, Some("files"), "files"),
    ] {
        *runtime.0.lock().unwrap() = None;
        let unknown = first(signal, one_filesystem).await;
        assert_eq!(unknown.as_deref(), while_unknown, "{signal:?}");
        assert!(is_impaired());
        *runtime.0.lock().unwrap() = Some(vec![("files", 0), ("layer", 5 * GI)]);
        let known = first(signal, one_filesystem).await;
        assert_eq!(known.as_deref(), Some(afterwards), "{signal:?}");
        assert!(!is_impaired());
    }
}
