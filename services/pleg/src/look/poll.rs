use polylet_cri::Runtime;

use super::{LIST_LIMIT, tell};
use crate::convert;
use crate::core::Polled;

/// What the runtime says of itself.
pub(crate) async fn poll(runtime: &Runtime) -> Result<Polled, String> {
    let runtime = runtime.with_timeout(LIST_LIMIT.min(runtime.timeout()));
    let (version, status) =
        futures::try_join!(runtime.version(), runtime.status()).map_err(|error| tell(&error))?;
    Ok(convert::polled(version, status))
}
