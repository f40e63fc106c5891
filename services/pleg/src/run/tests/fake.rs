//! A fake container runtime over a real socket, with faults to inject.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use polylet_cri::labels::PodLabels;
use polylet_cri::v1;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::server::{Grpc, UnaryService};
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

/// How long to wait for a condition.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
/// The name of every container.
pub(super) const CONTAINER: &str = "main";
/// The key in [`World::calls`] of lists of a single pod.
pub(super) const POD_LIST: &str = "ListContainers of a pod";

/// The state of the runtime, by container id; one sandbox per pod.
#[derive(Default)]
pub(super) struct World {
    pub(super) containers: BTreeMap<String, (String, v1::ContainerState)>,
    pub(super) hangs: HashSet<String>,
    pub(super) pids: HashMap<String, u32>,
    /// Verbose status calls fail.
    pub(super) refuses_verbose: bool,
    /// Checkpoints that were written.
    pub(super) checkpoints: Vec<v1::CheckpointContainerRequest>,
    /// Checkpoints are not implemented, as by a runtime without CRIU.
    pub(super) refuses_checkpoints: bool,
    pub(super) calls: HashMap<String, usize>,
}

/// A runtime whose state and call counts can be awaited.
#[derive(Clone, Default)]
pub(super) struct Fake(Arc<watch::Sender<World>>);

type ResponseFuture<T> = Pin<Box<dyn Future<Output = Result<Response<T>, Status>> + Send>>;

/// A unary method from a function.
struct Method<Q, R>(Fake, fn(Fake, Q) -> ResponseFuture<R>);

impl<Q, R> UnaryService<Q> for Method<Q, R> {
    type Response = R;
    type Future = ResponseFuture<R>;
    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        (self.1)(self.0.clone(), request.into_inner())
    }
}

fn calls(world: &World, name: &str) -> usize {
    world.calls.get(name).copied().unwrap_or(0)
}

fn now<T: Send + 'static>(value: T) -> ResponseFuture<T> {
    Box::pin(std::future::ready(Ok(Response::new(value))))
}

fn labels(uid: &str) -> HashMap<String, String> {
    let mut labels = HashMap::new();
    let pod = PodLabels {
        uid: uid.to_owned(),
        namespace: "ns".to_owned(),
        name: format!("name-{uid}"),
    };
    pod.write(&mut labels);
    labels
}

impl Fake {
    pub(super) fn change(&self, change: impl FnOnce(&mut World)) {
        self.0.send_modify(change);
    }

    pub(super) fn set(&self, id: &str, uid: &str, state: v1::ContainerState) {
        let container = (uid.to_owned(), state);
        self.change(|world| drop(world.containers.insert(id.to_owned(), container)));
    }

    pub(super) fn calls(&self, name: &str) -> usize {
        calls(&self.0.borrow(), name)
    }

    /// Waits until a call has been made `count` times.
    pub(super) async fn wait_for_calls(&self, name: &str, count: usize) {
        let mut world = self.0.subscribe();
        let made = world.wait_for(|world| calls(world, name) >= count);
        let made = timeout(TIMEOUT, made).await;
        made.expect("enough calls in time")
            .expect("the runtime lives");
    }

    fn count(&self, name: &str) {
        self.change(|world| *world.calls.entry(name.to_owned()).or_default() += 1);
    }

    fn pods(&self) -> Vec<String> {
        let world = self.0.borrow();
        let mut pods: Vec<_> = world.containers.values().map(|(u, _)| u.clone()).collect();
        pods.dedup();
        pods
    }

    fn list_sandboxes(&self, q: v1::ListPodSandboxRequest) -> Vec<v1::PodSandbox> {
        let selector = q.filter.unwrap_or_default().label_selector;
        let all = self.pods().into_iter().map(|uid| v1::PodSandbox {
            id: format!("s-{uid}"),
            labels: labels(&uid),
            ..Default::default()
        });
        all.filter(|s| selector.iter().all(|(k, v)| s.labels.get(k) == Some(v)))
            .collect()
    }

    fn list_containers(&self, q: v1::ListContainersRequest) -> Vec<v1::Container> {
        let selector = q.filter.unwrap_or_default().label_selector;
        if !selector.is_empty() {
            self.count(POD_LIST);
        }
        let world = self.0.borrow();
        let all = world
            .containers
            .iter()
            .map(|(id, (uid, state))| v1::Container {
                id: id.clone(),
                state: (*state).into(),
                labels: labels(uid),
                ..Default::default()
            });
        all.filter(|c| selector.iter().all(|(k, v)| c.labels.get(k) == Some(v)))
            .collect()
    }

    fn sandbox(id: String) -> v1::PodSandboxStatusResponse {
        let network = Some(v1::PodSandboxNetworkStatus {
            ip: "10.0.0.1".to_owned(),
            ..Default::default()
        });
        let status = Some(v1::PodSandboxStatus {
            id,
            network,
            ..Default::default()
        });
        v1::PodSandboxStatusResponse {
            status,
            ..Default::default()
        }
    }

    async fn container(
        self,
        q: v1::ContainerStatusRequest,
    ) -> Result<Response<v1::ContainerStatusResponse>, Status> {
        let id = q.container_id;
        let (hangs, container, info, refuses) = {
            let world = self.0.borrow();
            let container = world.containers.get(&id).cloned();
            let pid = world.pids.get(&id).filter(|_| q.verbose);
            let info = pid.map(|pid| ("info".to_owned(), format!(r#"{{"pid":{pid}}}"#)));
            (
                world.hangs.contains(&id),
                container,
                info,
                q.verbose && world.refuses_verbose,
            )
        };
        if refuses {
            return Err(Status::unknown("failed to get container spec"));
        }
        if hangs {
            return std::future::pending().await;
        }
        let (uid, state) = container.ok_or_else(|| Status::not_found("gone"))?;
        let status = Some(v1::ContainerStatus {
            metadata: Some(v1::ContainerMetadata {
                name: CONTAINER.to_owned(),
                attempt: 0,
            }),
            id,
            state: state.into(),
            labels: labels(&uid),
            ..Default::default()
        });
        Ok(Response::new(v1::ContainerStatusResponse {
            status,
            info: info.into_iter().collect(),
        }))
    }
}

impl Fake {
    async fn checkpoint(
        self,
        q: v1::CheckpointContainerRequest,
    ) -> Result<Response<v1::CheckpointContainerResponse>, Status> {
        if self.0.borrow().refuses_checkpoints {
            return Err(Status::unimplemented("no checkpoints"));
        }
        self.change(|world| world.checkpoints.push(q));
        Ok(Response::new(v1::CheckpointContainerResponse {}))
    }

    pub(super) fn checkpoints(&self) -> Vec<v1::CheckpointContainerRequest> {
        self.0.borrow().checkpoints.clone()
    }
}

impl tower_service::Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = HttpFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let fake = self.clone();
        let path = request.uri().path().to_owned();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        fake.count(&name);
        match name.as_str() {
            "Version" => unary(fake, request, |_, _: v1::VersionRequest| {
                now(v1::VersionResponse::default())
            }),
            "Status" => unary(fake, request, |_, _: v1::StatusRequest| now(ready_status())),
            "ListPodSandbox" => unary(fake, request, |fake, q| {
                let items = fake.list_sandboxes(q);
                now(v1::ListPodSandboxResponse { items })
            }),
            "ListContainers" => unary(fake, request, |fake, q| {
                let containers = fake.list_containers(q);
                now(v1::ListContainersResponse { containers })
            }),
            "PodSandboxStatus" => unary(fake, request, |_, q: v1::PodSandboxStatusRequest| {
                now(Fake::sandbox(q.pod_sandbox_id))
            }),
            "ContainerStatus" => unary(fake, request, |fake, q: v1::ContainerStatusRequest| {
                Box::pin(fake.container(q))
            }),
            "CheckpointContainer" => {
                unary(fake, request, |fake, q: v1::CheckpointContainerRequest| {
                    Box::pin(fake.checkpoint(q))
                })
            }
            _ => Box::pin(async { Ok(Status::unimplemented("no such call").into_http()) }),
        }
    }
}

type HttpFuture = Pin<Box<dyn Future<Output = Result<http::Response<Body>, Infallible>> + Send>>;

fn unary<Q, R>(
    fake: Fake,
    request: http::Request<Body>,
    f: fn(Fake, Q) -> ResponseFuture<R>,
) -> HttpFuture
where
    Q: prost::Message + Default + 'static,
    R: prost::Message + Default + 'static,
{
    Box::pin(async move {
        let mut grpc = Grpc::new(ProstCodec::<R, Q>::default());
        Ok(grpc.unary(Method(fake, f), request).await)
    })
}

fn ready_status() -> v1::StatusResponse {
    let condition = |kind: &str| v1::RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        ..Default::default()
    };
    let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
    v1::StatusResponse {
        status: Some(v1::RuntimeStatus { conditions }),
        ..Default::default()
    }
}
