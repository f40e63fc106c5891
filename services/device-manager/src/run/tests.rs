//! The event loop without its server, against a plugin on a real socket.

use std::future::Future;

use futures::StreamExt;
use polylet_schedule::BackoffPolicy;
use polylet_wire::device::v1::WatchResourcesResponse;
use polylet_wire::device::v1::watch_resources_response::Change;
use tempfile::TempDir;
use tokio::task::{JoinHandle, LocalSet};

use super::*;
use crate::plugin::connection::ConnectTiming;
use plugin::{DeviceList, TestPlugin};

mod plugin;

const A: &str = "example.com/a";
const B: &str = "example.com/b";
const TWO: DeviceList = DeviceList::Devices(&["x", "y"]);

/// One process of the service.
struct Process {
    published: PublishedDevices,
    plugin_inputs: mpsc::Sender<PluginInput>,
    drain: CancellationToken,
    event_loop: JoinHandle<()>,
}

impl Process {
    fn start(directory: &TempDir) -> Self {
        Self::with_timing(directory, ConnectTiming::default())
    }

    fn with_timing(directory: &TempDir, connect: ConnectTiming) -> Self {
        let config = Config {
            directory: directory.path().to_owned(),
            run_directory: directory.path().to_owned(),
            connect,
        };
        let published = PublishedDevices {
            resources: Store::new("test"),
            pods: Store::new("test"),
        };
        let drain = CancellationToken::new();
        let (plugin_inputs, plugin_receiver) = mpsc::channel(64);
        let event_loop = EventLoop::new(
            config,
            drain.clone(),
            Rc::new(|_, work| {
                tokio::task::spawn_local(work);
            }),
            published.clone(),
            mpsc::channel(64),
            (plugin_inputs.clone(), plugin_receiver),
        );
        let event_loop = tokio::task::spawn_local(event_loop.unwrap().run());
        Process {
            published,
            plugin_inputs,
            drain,
            event_loop,
        }
    }

    async fn stop(self) {
        self.drain.cancel();
        self.event_loop.await.unwrap();
    }

    /// Registers a plugin at `p.sock`.
    async fn register(&self, resource: &str) {
        let (response, result) = oneshot::channel();
        let registration = PluginRegistration {
            version: registration::API_VERSION.to_owned(),
            resource: resource.to_owned(),
            endpoint: "p.sock".to_owned(),
            response,
        };
        let input = PluginInput::Register(registration);
        self.plugin_inputs.send(input).await.ok().unwrap();
        assert_eq!(result.await.unwrap(), Ok(()));
    }

    /// Waits until this capacity and these healthy devices are published.
    async fn wait_counts(&self, resource: &str, expected: (u64, u64)) {
        let store = self.published.resources.clone();
        let mut stream = polylet_watch::serve::<WatchResourcesResponse>(store, None);
        while let Some(response) = stream.next().await {
            match response.unwrap().change {
                Some(Change::Upsert(found))
                    if found.name == resource
                        && (found.capacity, found.allocatable) == expected =>
                {
                    return;
                }
                _ => {}
            }
        }
    }
}

fn socket(directory: &TempDir) -> PathBuf {
    directory.path().join("p.sock")
}

/// The resources whose plugins the next process connects to.
fn stored(directory: &TempDir) -> Vec<String> {
    let (_, records) = PluginFiles::restore(directory.path()).unwrap();
    records.sockets.into_keys().collect()
}

/// A process and a plugin that has registered two devices with it.
async fn registered(directory: &TempDir) -> (TestPlugin, Process) {
    let plugin = TestPlugin::start(&socket(directory), TWO);
    let process = Process::start(directory);
    process.register(A).await;
    process.wait_counts(A, (2, 2)).await;
    (plugin, process)
}

fn run_test(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let result = LocalSet::new().block_on(&runtime.unwrap(), async {
        tokio::time::timeout(Duration::from_secs(60), test).await
    });
    assert!(result.is_ok(), "the test takes too long");
}

#[test]
fn a_plugin_that_has_stopped_is_forgotten() {
    run_test(async {
        let directory = tempfile::tempdir().unwrap();
        let (plugin, process) = registered(&directory).await;
        assert_eq!(stored(&directory), [A]);
        plugin.list(DeviceList::Ended);
        process.wait_counts(A, (2, 0)).await;
        assert!(stored(&directory).is_empty());
        process.stop().await;
        // The plugin listens again, and has not registered.
        plugin.list(TWO);
        let calls = plugin.calls();
        let process = Process::start(&directory);
        process.wait_counts(A, (0, 0)).await;
        assert_eq!(plugin.calls(), calls);
    });
}

#[test]
fn a_socket_is_that_of_the_resource_that_registered_last() {
    run_test(async {
        let directory = tempfile::tempdir().unwrap();
        let (_plugin, process) = registered(&directory).await;
        process.stop().await;
        // The plugin is configured anew while no process sees it.
        let process = Process::start(&directory);
        process.wait_counts(A, (2, 2)).await;
        process.register(B).await;
        process.wait_counts(A, (2, 0)).await;
        process.wait_counts(B, (2, 2)).await;
        assert_eq!(stored(&directory), [B]);
    });
}

#[test]
fn a_plugin_that_hangs_over_a_restart_is_called_again() {
    run_test(async {
        let directory = tempfile::tempdir().unwrap();
        let (plugin, process) = registered(&directory).await;
        process.stop().await;
        plugin.hang_once();
        let delay = Duration::from_millis(100);
        let process = Process::with_timing(
            &directory,
            ConnectTiming {
                deadline: delay,
                retry: BackoffPolicy::new(delay, delay),
            },
        );
        process.wait_counts(A, (2, 2)).await;
        assert_eq!(stored(&directory), [A]);
    });
}

#[test]
fn a_plugin_without_a_socket_is_not_called_again() {
    run_test(async {
        let directory = tempfile::tempdir().unwrap();
        let (_plugin, process) = registered(&directory).await;
        process.stop().await;
        std::fs::remove_file(socket(&directory)).unwrap();
        let process = Process::start(&directory);
        process.wait_counts(A, (0, 0)).await;
        assert!(stored(&directory).is_empty());
    });
}

#[test]
fn a_plugin_that_lists_after_a_restart_is_known() {
    run_test(async {
        let directory = tempfile::tempdir().unwrap();
        let plugin = TestPlugin::start(&socket(&directory), DeviceList::HeldBack);
        let process = Process::start(&directory);
        process.register(A).await;
        process.stop().await;
        let process = Process::start(&directory);
        plugin.list(TWO);
        process.wait_counts(A, (2, 2)).await;
    });
}
