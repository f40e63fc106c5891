//! Drivers make themselves known with a socket in `plugins_registry`: each is asked who it is,
//! what it can do here, and told whether that was understood.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use polylet_kit::{CancellationToken, channel, report};
use polylet_wire::pluginregistration::v1::registration_client::RegistrationClient;
use polylet_wire::pluginregistration::v1::{InfoRequest, RegistrationStatus};
use tokio::sync::mpsc;

use super::client;
use super::recount::{self, Recounts};
use crate::core::csi::Registered;
use crate::run::{Input, Spawn};

/// What a CSI driver calls itself; other plugins are not for us.
const KIND: &str = "CSIPlugin";
/// How long a plugin may take to say who it is.
const DEADLINE: Duration = Duration::from_secs(10);
/// After a failure; doubled up to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Should nothing be told of the directory, it is looked at all the same.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// A socket, and which one of its name.
type Socket = (PathBuf, u64);

/// A version of CSI.
type Version = (u64, u64, u64);

/// Who is registered, by socket: name and version.
type Table = Rc<RefCell<BTreeMap<Socket, (String, Version)>>>;

/// Follows the directory until the process ends.
pub async fn follow(
    registry: PathBuf,
    inputs: mpsc::Sender<Input>,
    spawn: Spawn,
    drain: CancellationToken,
    recounts: Recounts,
) {
    let mut known: BTreeMap<Socket, CancellationToken> = BTreeMap::new();
    let table = Table::default();
    let make = || {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o750).create(&registry)
    };
    if let Err(error) = make() {
        tracing::warn!(path = %registry.display(), %error, "no CSI driver can register");
    }
    let mut events = match watch(&registry) {
        Ok(events) => Some(events),
        Err(error) => {
            tracing::warn!(path = %registry.display(), %error, "drivers are looked for now and then");
            None
        }
    };
    loop {
        let there = sockets(&registry);
        known.retain(|socket, token| {
            let stays = there.contains(socket);
            if !stays {
                token.cancel();
                // At once: the same driver may come back with another socket.
                table.borrow_mut().remove(socket);
            }
            stays
        });
        for socket in there {
            if known.contains_key(&socket) {
                continue;
            }
            let token = CancellationToken::new();
            let (path, inputs, gone) = (socket.0.clone(), inputs.clone(), token.clone());
            let (drain, table, socket_of) = (drain.clone(), Rc::clone(&table), socket.clone());
            let recounts = recounts.clone();
            spawn(Box::pin(async move {
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = gone.cancelled() => {}
                    () = stay(&socket_of, &table, &inputs, recounts) => {}
                }
                // Nobody listens only when the process is about to end.
                let _ = inputs.send(Input::Driver(path, None)).await;
            }));
            known.insert(socket, token);
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
            () = tokio::time::sleep(LOOK_AGAIN) => {}
        }
    }
}

fn watch(registry: &Path) -> std::io::Result<inotify::EventStream<[u8; 4096]>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    inotify.watches().add(registry, mask)?;
    inotify.into_event_stream([0; 4096])
}

fn sockets(registry: &Path) -> Vec<Socket> {
    let entries = std::fs::read_dir(registry).into_iter().flatten().flatten();
    let sockets = entries.filter_map(|entry| {
        let is = entry.path().symlink_metadata().ok()?;
        is.file_type().is_socket().then(|| (entry.path(), is.ino()))
    });
    sockets.collect()
}

/// Registers the plugin, and stays while its socket does.
async fn stay(of: &Socket, table: &Table, inputs: &mpsc::Sender<Input>, recounts: Recounts) {
    let socket = &of.0;
    let mut wait = FIRST_WAIT;
    loop {
        match register(of, table).await {
            Ok(driver) => {
                if let Some(driver) = driver {
                    tracing::info!(driver = driver.name, "a CSI driver is registered");
                    let input = Input::Driver(socket.to_owned(), Some(driver.clone()));
                    if inputs.send(input).await.is_err() {
                        return;
                    }
                    recount::follow(socket, driver, inputs, recounts).await;
                }
                return std::future::pending().await;
            }
            Err(why) => {
                tracing::warn!(socket = %socket.display(), why, "a plugin cannot be registered yet");
                tokio::time::sleep(wait).await;
                wait = wait.saturating_mul(2).min(LONGEST_WAIT);
            }
        }
    }
}

/// Of two drivers of one name the first is registered, unless the other speaks a newer CSI.
///
/// # Errors
/// Upstream's words.
fn newest(name: &str, versions: &[String], of: &Socket, table: &Table) -> Result<Version, String> {
    let said = |why: String| {
        format!("kubernetes.io/csi: RegisterPlugin for CSI driver \"{name}\" failed. {why}")
    };
    if versions.is_empty() {
        return Err(said(
            "Plugin returned an empty list for supported versions".to_owned(),
        ));
    }
    let newest = versions
        .iter()
        .filter_map(|text| version(text))
        .filter(|v| v.0 == 1)
        .max();
    let newest = newest.ok_or_else(|| {
        said(format!(
            "None of the versions specified {versions:?} are supported. err=none is CSI v1"
        ))
    })?;
    let table = table.borrow();
    let mut others = table
        .iter()
        .filter(|(socket, (known, _))| *socket != of && known == name);
    match others.find(|(_, (_, known))| *known >= newest) {
        Some((_, (_, (major, minor, patch)))) => Err(said(format!(
            "Another driver with the same name is already registered with a higher supported version: \"{major}.{minor}.{patch}\""
        ))),
        None => Ok(newest),
    }
}

/// `v1.2.0` or `1.2.0`, as numbers.
fn version(text: &str) -> Option<Version> {
    let mut numbers = text.trim_start_matches('v').split('.').map(str::parse);
    let mut next = || numbers.next().unwrap_or(Ok(0)).ok();
    Some((next()?, next()?, next()?))
}

async fn register(of: &Socket, table: &Table) -> Result<Option<Registered>, String> {
    let socket = &of.0;
    let mut client = RegistrationClient::new(channel::plain(socket));
    let asked = client.get_info(InfoRequest {});
    let info = tokio::time::timeout(DEADLINE, asked).await;
    let info = info.map_err(|_| "it does not say who it is".to_owned())?;
    let info = info
        .map_err(|status| status.message().to_owned())?
        .into_inner();
    if info.r#type != KIND {
        return Ok(None);
    }
    let endpoint = match info.endpoint.strip_prefix("unix://") {
        Some(path) => PathBuf::from(path),
        None if info.endpoint.is_empty() => socket.to_owned(),
        None => PathBuf::from(&info.endpoint),
    };
    let looked = match newest(&info.name, &info.supported_versions, of, table) {
        Ok(version) => {
            let looked = client::look(info.name, endpoint).await;
            looked
                .map(|driver| Registered { version, ..driver })
                .map_err(|error| report(&error))
        }
        Err(why) => Err(format!("plugin validation failed with err: {why}")),
    };
    let looked = looked.map_err(|why| format!("RegisterPlugin error -- {why}"));
    if let Ok(driver) = &looked {
        let known = (driver.name.clone(), driver.version);
        table.borrow_mut().insert(of.clone(), known);
    }
    let status = RegistrationStatus {
        plugin_registered: looked.is_ok(),
        error: looked.as_ref().err().cloned().unwrap_or_default(),
    };
    let told = client.notify_registration_status(status);
    if let Ok(Err(status)) = tokio::time::timeout(DEADLINE, told).await {
        tracing::debug!(
            message = status.message(),
            "a plugin does not hear that it is registered"
        );
    }
    looked.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_drivers_of_one_name_the_newer_wins() {
        let socket = |name: &str| (PathBuf::from(name), 1);
        let table = Table::default();
        let known = ("d".to_owned(), (1, 2, 0));
        table.borrow_mut().insert(socket("a"), known);
        let asks = |name: &str, versions: &[&str], of: &str| {
            let versions: Vec<_> = versions.iter().map(|v| (*v).to_owned()).collect();
            newest(name, &versions, &socket(of), &table)
        };
        assert_eq!(asks("d", &["1.0.0", "v1.3.0"], "b"), Ok((1, 3, 0)));
        let said = asks("d", &["1.2.0"], "b").unwrap_err();
        assert!(
            said.ends_with("with a higher supported version: \"1.2.0\""),
            "{said}"
        );
        // The same socket again, and another name.
        assert_eq!(asks("d", &["1.2.0"], "a"), Ok((1, 2, 0)));
        assert_eq!(asks("e", &["1.0.0"], "b"), Ok((1, 0, 0)));
        assert!(asks("e", &[], "b").is_err());
        assert!(asks("e", &["0.3.0", "x"], "b").is_err());
    }
}
