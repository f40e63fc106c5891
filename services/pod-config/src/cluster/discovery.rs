//! Which version of a kind the server serves, if any: of some it says only that they are forbidden
//! where it does not serve them.

use std::time::Duration;

use polylet_api::{Backoff, Refusal};
use serde_json::Value;

use super::follow::Ear;
use super::line::Lines;
use super::request::{self, Failure};
use crate::core::cluster::kinds::Kind;

const SHORTEST: Duration = Duration::from_millis(50);
/// After a server that could not say.
const LONGEST: Duration = Duration::from_secs(5);
/// A server that serves none does so until it is started anew.
const NONE_SERVED: Duration = Duration::from_secs(30);

/// The newest version that the server serves; asked for until there is one.
pub(crate) async fn served(lines: &Lines, kind: Kind, ear: &mut impl Ear) -> Kind {
    let mut backoff = Backoff::new(SHORTEST, LONGEST);
    loop {
        if let Some(message) = lines.trouble.shut() {
            ear.failed(&Failure::unreachable(message));
            lines.trouble.open().await;
        }
        match newest(lines, kind).await {
            Ok(Some(kind)) => return kind,
            Ok(None) => {
                ear.failed(&Failure {
                    refusal: Refusal::NotFound,
                    message: kind.unserved(),
                    unserved: true,
                });
                backoff.succeeded();
                tokio::time::sleep(NONE_SERVED).await;
            }
            Err(failure) => {
                ear.failed(&failure);
                backoff.failed(None);
                backoff.wait().await;
            }
        }
    }
}

async fn newest(lines: &Lines, kind: Kind) -> Result<Option<Kind>, Failure> {
    for (base, kind) in kind.versions() {
        match lines.ask(base, None).await {
            Ok(bytes) => {
                if kind.is_in(&request::read::<Value>(&bytes)?) {
                    return Ok(Some(kind));
                }
            }
            Err(failure) if failure.refusal == Refusal::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}
