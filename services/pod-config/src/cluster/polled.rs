//! Objects that a node may get and may not watch: got again, often while something is awaited of
//! them.

use std::time::Duration;

use polylet_api::{Backoff, Refusal, random};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::follow::{Ear, Followed};
use super::line::Lines;
use super::objects::Object;
use super::request::{self, Failure};
use crate::core::cluster::kinds::encoded;
use crate::core::cluster::poll::{is_awaited, pause};

/// Between tries.
const SHORTEST: Duration = Duration::from_millis(50);

/// Gets one object again and again; `look` asks for it now.
pub(crate) async fn poll(lines: &Lines, of: &Followed, look: &Notify, ear: &mut Object<'_>) {
    let name = of.name.as_deref().unwrap_or_default();
    let path = format!("{}/{}", of.path, encoded(name));
    let mut backoff = Backoff::new(SHORTEST, Duration::from_secs(5));
    let mut forbidden = Backoff::new(SHORTEST, Duration::from_secs(1));
    let mut awaited = 0;
    loop {
        if let Some(message) = lines.trouble.shut() {
            ear.failed(&Failure::unreachable(message));
            lines.trouble.open().await;
        }
        let before = ear.value.clone();
        match get(lines, &path).await {
            Ok(object) => {
                backoff.succeeded();
                forbidden.succeeded();
                ear.whole(&mut object.into_iter()).await;
            }
            Err(failure) => {
                ear.failed(&failure);
                let asked = match failure.refusal {
                    Refusal::Busy(asked) => asked,
                    _ => None,
                };
                // Of what is not there yet the server says that it is none of our business.
                let pause = match failure.refusal {
                    Refusal::Forbidden => &mut forbidden,
                    _ => &mut backoff,
                };
                pause.failed(asked);
                pause.wait().await;
                continue;
            }
        }
        let waits = is_awaited(ear.kind().name, ear.value.as_ref());
        // What is on its way goes on soon.
        awaited = if ear.value == before { awaited + 1 } else { 0 };
        // Spread, so that what was first asked for together is not for ever.
        let pause = pause(waits.then_some(awaited)).mul_f64(1.0 + random() / 2.0);
        tokio::select! {
            () = sleep(pause) => {}
            () = look.notified() => {}
        }
    }
}

async fn get(lines: &Lines, path: &str) -> Result<Option<Value>, Failure> {
    match lines.ask(path, None).await {
        Ok(bytes) => request::read(&bytes).map(Some),
        Err(failure) if failure.refusal == Refusal::NotFound && !failure.unserved => Ok(None),
        Err(failure) => Err(failure),
    }
}
