//! A driver that may have room for more volumes, or for fewer, is asked about that again and again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use polylet_kit::report;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::client;
use crate::core::csi::Registered;
use crate::core::limits::Recount;
use crate::run::Input;

/// Who is to be asked when, by name.
pub type Recounts = watch::Receiver<BTreeMap<String, Recount>>;

/// Asks one driver for as long as it is registered, and tells of what has changed.
pub async fn follow(
    socket: &Path,
    mut driver: Registered,
    inputs: &mpsc::Sender<Input>,
    mut recounts: Recounts,
) {
    let mut last = Instant::now();
    let mut asked = None;
    loop {
        let wanted = recounts.borrow_and_update().get(&driver.name).copied();
        // What came before it was registered was answered by that.
        let before = asked.replace(wanted.map_or(0, |wanted| wanted.asked));
        let due = wanted.map(|wanted| match before {
            Some(before) if before != wanted.asked => Instant::now(),
            _ => last + Duration::from_secs(wanted.every),
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
            changed = recounts.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        last = Instant::now();
        let looked = client::look(driver.name.clone(), driver.endpoint.clone()).await;
        let now = match looked {
            Ok(now) => Registered {
                version: driver.version,
                ..now
            },
            Err(error) => {
                let (driver, error) = (&driver.name, report(&error));
                tracing::warn!(
                    driver,
                    error,
                    "a driver does not say how many volumes it can have"
                );
                continue;
            }
        };
        if now == driver {
            continue;
        }
        driver = now;
        let input = Input::Driver(socket.to_owned(), Some(driver.clone()));
        if inputs.send(input).await.is_err() {
            return;
        }
    }
}
