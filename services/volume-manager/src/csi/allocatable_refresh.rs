//! Refreshes the limit of volumes of drivers: periodically, and when a pod was rejected for it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use polylet_kit::report;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::client;
use crate::core::attach_limits::AllocatableUpdate;
use crate::core::csi_volume::RegisteredDriver;
use crate::input::Input;

/// When to refresh the limit of each driver, by name.
pub type AllocatableUpdates = watch::Receiver<BTreeMap<String, AllocatableUpdate>>;

/// Refreshes one driver for as long as it is registered, and sends changes.
pub async fn run(
    socket: &Path,
    mut driver: RegisteredDriver,
    inputs: &mpsc::Sender<Input>,
    mut updates: AllocatableUpdates,
) {
    let mut last = Instant::now();
    let mut generation = None;
    loop {
        let update = updates.borrow_and_update().get(&driver.name).copied();
        // The registration covers all requests before it.
        let before = generation.replace(update.map_or(0, |update| update.generation));
        let due = update.map(|update| match before {
            Some(before) if before != update.generation => Instant::now(),
            _ => last + Duration::from_secs(update.period_seconds),
        });
        let is_due = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = is_due => {}
            changed = updates.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        last = Instant::now();
        let info = client::get_info(driver.name.clone(), driver.endpoint.clone()).await;
        let refreshed = match info {
            Ok(info) => RegisteredDriver {
                version: driver.version,
                ..info
            },
            Err(error) => {
                let error = report(&error);
                tracing::warn!(
                    driver = driver.name,
                    error,
                    "failed to refresh driver limit"
                );
                continue;
            }
        };
        if refreshed == driver {
            continue;
        }
        driver = refreshed;
        let input = Input::Driver(socket.to_owned(), Some(driver.clone()));
        if inputs.send(input).await.is_err() {
            return;
        }
    }
}
