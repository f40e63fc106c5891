//! The plugin registry: drivers register with a socket in `plugins_registry`. Each is asked for its
//! name and capabilities, and notified of the result.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use polylet_kit::{CancellationToken, channel, report};
use polylet_schedule::Backoff;
use polylet_wire::pluginregistration::v1::registration_client::RegistrationClient;
use polylet_wire::pluginregistration::v1::{InfoRequest, RegistrationStatus};
use tokio::sync::mpsc;

use super::allocatable_refresh::{self, AllocatableUpdates};
use super::client;
use crate::background::Spawn;
use crate::core::csi_volume::RegisteredDriver;
use crate::input::Input;

/// The plugin type of CSI drivers; other plugins are ignored.
const PLUGIN_TYPE: &str = "CSIPlugin";
/// The deadline of a call to a plugin.
const DEADLINE: Duration = Duration::from_secs(10);
/// Delays after failures.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY: Duration = Duration::from_secs(60);
/// How often the directory is scanned without an event.
const RESCAN_PERIOD: Duration = Duration::from_secs(60);

/// A socket in the directory. One that is removed and made again is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PluginSocket {
    path: PathBuf,
    inode: u64,
    /// When the inode last changed, in seconds and nanoseconds since the epoch: file systems give the
    /// inode of a file that was just removed to the next one.
    changed_at: (i64, i64),
}

/// A version of CSI.
type CsiVersion = (u64, u64, u64);

/// Name and version of the registered drivers, by socket.
type DriverTable = Rc<RefCell<BTreeMap<PluginSocket, (String, CsiVersion)>>>;

/// Watches the directory until the process ends.
pub async fn run(
    registry: PathBuf,
    inputs: mpsc::Sender<Input>,
    spawn: Spawn,
    drain: CancellationToken,
    updates: AllocatableUpdates,
) {
    let mut tasks: BTreeMap<PluginSocket, CancellationToken> = BTreeMap::new();
    let table = DriverTable::default();
    let mut builder = std::fs::DirBuilder::new();
    if let Err(error) = builder.recursive(true).mode(0o750).create(&registry) {
        let path = registry.display();
        tracing::warn!(%path, %error, "failed to create plugin registry; no CSI driver can register");
    }
    let mut events = match watch(&registry) {
        Ok(events) => Some(events),
        Err(error) => {
            let path = registry.display();
            tracing::warn!(%path, %error, "inotify unavailable; polling the plugin registry");
            None
        }
    };
    loop {
        let sockets = scan(&registry);
        tasks.retain(|socket, token| {
            let exists = sockets.contains(socket);
            if !exists {
                token.cancel();
                // At once: the same driver may register again with another socket.
                table.borrow_mut().remove(socket);
            }
            exists
        });
        for socket in sockets {
            if tasks.contains_key(&socket) {
                continue;
            }
            let token = CancellationToken::new();
            let (path, removed) = (socket.path.clone(), token.clone());
            let (table, plugin) = (Rc::clone(&table), socket.clone());
            let (inputs, drain, updates) = (inputs.clone(), drain.clone(), updates.clone());
            spawn(Box::pin(async move {
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = removed.cancelled() => {}
                    () = run_plugin(&plugin, &table, &inputs, updates) => {}
                }
                // The event loop ends only with the process.
                let _ = inputs.send(Input::Driver(path, None)).await;
            }));
            tasks.insert(socket, token);
        }
        let event = async {
            match &mut events {
                Some(events) => drop(events.next().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = drain.cancelled() => return,
            () = event => {}
            () = tokio::time::sleep(RESCAN_PERIOD) => {}
        }
    }
}

fn watch(registry: &Path) -> std::io::Result<inotify::EventStream<[u8; 4096]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    inotify.watches().add(registry, mask)?;
    inotify.into_event_stream([0; 4096])
}

fn scan(registry: &Path) -> Vec<PluginSocket> {
    let entries = std::fs::read_dir(registry).into_iter().flatten().flatten();
    let sockets = entries.filter_map(|entry| {
        let stat = entry.path().symlink_metadata().ok()?;
        stat.file_type().is_socket().then(|| PluginSocket {
            path: entry.path(),
            inode: stat.ino(),
            changed_at: (stat.ctime(), stat.ctime_nsec()),
        })
    });
    sockets.collect()
}

/// Registers a plugin, and refreshes it as long as its socket exists.
async fn run_plugin(
    plugin: &PluginSocket,
    table: &DriverTable,
    inputs: &mpsc::Sender<Input>,
    updates: AllocatableUpdates,
) {
    let socket = &plugin.path;
    let mut backoff = Backoff::new(FIRST_RETRY, MAX_RETRY);
    loop {
        match register(plugin, table).await {
            Ok(driver) => {
                if let Some(driver) = driver {
                    tracing::info!(driver = driver.name, "registered CSI driver");
                    let input = Input::Driver(socket.to_owned(), Some(driver.clone()));
                    if inputs.send(input).await.is_err() {
                        return;
                    }
                    allocatable_refresh::run(socket, driver, inputs, updates).await;
                }
                return std::future::pending().await;
            }
            Err(error) => {
                let retry_in = backoff.next_delay();
                let path = socket.display();
                tracing::warn!(%path, error, ?retry_in, "failed to register plugin; retrying");
                tokio::time::sleep(retry_in).await;
            }
        }
    }
}

/// The highest supported version. Of two drivers of one name the first stays registered, unless the
/// other supports a newer version of CSI.
///
/// # Errors
/// Upstream's message.
fn highest_version(
    name: &str,
    versions: &[String],
    plugin: &PluginSocket,
    table: &DriverTable,
) -> Result<CsiVersion, String> {
    let failed = |reason: String| {
        format!("kubernetes.io/csi: RegisterPlugin for CSI driver \"{name}\" failed. {reason}")
    };
    if versions.is_empty() {
        return Err(failed(
            "Plugin returned an empty list for supported versions".to_owned(),
        ));
    }
    let highest = versions
        .iter()
        .filter_map(|text| parse_version(text))
        .filter(|version| version.0 == 1)
        .max();
    let highest = highest.ok_or_else(|| {
        failed(format!(
            "None of the versions specified {versions:?} are supported. err=none is CSI v1"
        ))
    })?;
    let table = table.borrow();
    let mut others = table
        .iter()
        .filter(|(socket, (other, _))| *socket != plugin && other == name);
    match others.find(|(_, (_, version))| *version >= highest) {
        Some((_, (_, (major, minor, patch)))) => Err(failed(format!(
            "Another driver with the same name is already registered with a higher supported version: \"{major}.{minor}.{patch}\""
        ))),
        None => Ok(highest),
    }
}

/// Parses `v1.2.0` or `1.2.0`.
fn parse_version(text: &str) -> Option<CsiVersion> {
    let mut numbers = text.trim_start_matches('v').split('.').map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
    Some((next()?, next()?, next()?))
}

async fn register(
    plugin: &PluginSocket,
    table: &DriverTable,
) -> Result<Option<RegisteredDriver>, String> {
    let socket = &plugin.path;
    let mut client = RegistrationClient::new(channel::unix(socket));
    let info = tokio::time::timeout(DEADLINE, client.get_info(InfoRequest {})).await;
    let info = info.map_err(|_| "no answer to GetInfo in time".to_owned())?;
    let info = info
        .map_err(|status| status.message().to_owned())?
        .into_inner();
    if info.r#type != PLUGIN_TYPE {
        return Ok(None);
    }
    let endpoint = match info.endpoint.strip_prefix("unix://") {
        Some(path) => PathBuf::from(path),
        None if info.endpoint.is_empty() => socket.to_owned(),
        None => PathBuf::from(&info.endpoint),
    };
    let driver = match highest_version(&info.name, &info.supported_versions, plugin, table) {
        Ok(version) => {
            let driver = client::get_info(info.name, endpoint).await;
            driver
                .map(|driver| RegisteredDriver { version, ..driver })
                .map_err(|error| report(&error))
        }
        Err(error) => Err(format!("plugin validation failed with err: {error}")),
    };
    let driver = driver.map_err(|error| format!("RegisterPlugin error -- {error}"));
    if let Ok(driver) = &driver {
        let entry = (driver.name.clone(), driver.version);
        table.borrow_mut().insert(plugin.clone(), entry);
    }
    let status = RegistrationStatus {
        plugin_registered: driver.is_ok(),
        error: driver.as_ref().err().cloned().unwrap_or_default(),
    };
    let notified = client.notify_registration_status(status);
    if let Ok(Err(status)) = tokio::time::timeout(DEADLINE, notified).await {
        let (path, error) = (socket.display(), status.message());
        tracing::debug!(%path, error, "failed to notify plugin of its registration");
    }
    driver.map(Some)
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_socket_with_the_inode_of_a_removed_one_is_another_one() {
        let registry = tempfile::tempdir().unwrap();
        let path = registry.path().join("d-reg.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let first = scan(registry.path()).pop().unwrap();
        assert_eq!(scan(registry.path()), std::slice::from_ref(&first));
        // Not every file system uses an inode again at once, but each notes the time of a change. The
        // kernel's clock for that advances every few milliseconds.
        let began = Instant::now();
        let second = loop {
            set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
            let mut sockets = scan(registry.path());
            match sockets.pop() {
                Some(socket) if socket != first => break socket,
                _ => assert!(began.elapsed() < DEADLINE, "{first:?} stays"),
            }
        };
        assert_eq!((&second.path, second.inode), (&first.path, first.inode));
    }

    #[test]
    fn of_two_drivers_of_one_name_the_newer_version_wins() {
        let socket = |name: &str| PluginSocket {
            path: PathBuf::from(name),
            inode: 1,
            changed_at: (0, 0),
        };
        let table = DriverTable::default();
        let entry = ("d".to_owned(), (1, 2, 0));
        table.borrow_mut().insert(socket("a"), entry);
        let version = |name: &str, versions: &[&str], plugin: &str| {
            let versions: Vec<_> = versions.iter().map(|v| (*v).to_owned()).collect();
            highest_version(name, &versions, &socket(plugin), &table)
        };
        assert_eq!(version("d", &["1.0.0", "v1.3.0"], "b"), Ok((1, 3, 0)));
        let error = version("d", &["1.2.0"], "b").unwrap_err();
        assert!(
            error.ends_with("with a higher supported version: \"1.2.0\""),
            "{error}"
        );
        // The same socket again, and another name.
        assert_eq!(version("d", &["1.2.0"], "a"), Ok((1, 2, 0)));
        assert_eq!(version("e", &["1.0.0"], "b"), Ok((1, 0, 0)));
        assert!(version("e", &[], "b").is_err());
        assert!(version("e", &["0.3.0", "x"], "b").is_err());
    }
}
