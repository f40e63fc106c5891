//! Drivers make themselves known with a socket in `plugins_registry`: each is asked who it is,
//! what it can do here, and told whether that was understood.

use std::collections::BTreeMap;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use inotify::{Inotify, WatchMask};
use polylet_kit::{CancellationToken, channel, report};
use polylet_wire::pluginregistration::v1::registration_client::RegistrationClient;
use polylet_wire::pluginregistration::v1::{InfoRequest, RegistrationStatus};
use tokio::sync::mpsc;

use super::client;
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

/// Follows the directory until the process ends.
pub async fn follow(
    registry: PathBuf,
    inputs: mpsc::Sender<Input>,
    spawn: Spawn,
    drain: CancellationToken,
) {
    let mut known: BTreeMap<Socket, CancellationToken> = BTreeMap::new();
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
            }
            stays
        });
        for socket in there {
            if known.contains_key(&socket) {
                continue;
            }
            let token = CancellationToken::new();
            let (path, inputs, gone) = (socket.0.clone(), inputs.clone(), token.clone());
            let drain = drain.clone();
            spawn(Box::pin(async move {
                tokio::select! {
                    () = drain.cancelled() => return,
                    () = gone.cancelled() => {}
                    () = stay(&path, &inputs) => {}
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
async fn stay(socket: &Path, inputs: &mpsc::Sender<Input>) {
    let mut wait = FIRST_WAIT;
    loop {
        match register(socket).await {
            Ok(driver) => {
                if let Some(driver) = driver {
                    tracing::info!(driver = driver.name, "a CSI driver is registered");
                    let input = Input::Driver(socket.to_owned(), Some(driver));
                    if inputs.send(input).await.is_err() {
                        return;
                    }
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

async fn register(socket: &Path) -> Result<Option<Registered>, String> {
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
    let looked = match info
        .supported_versions
        .iter()
        .any(|v| v.trim_start_matches('v').starts_with("1."))
    {
        true => client::look(info.name, endpoint)
            .await
            .map_err(|error| report(&error)),
        false => Err(format!(
            "of versions {:?} none is CSI v1",
            info.supported_versions
        )),
    };
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
