use polylet_cri::RuntimeClient;
use polylet_kit::report;

use super::LIST_TIMEOUT;
use crate::convert;
use crate::core::HealthCheck;

/// Requests the runtime's version and status.
pub(crate) async fn check_health(runtime: &RuntimeClient) -> Result<HealthCheck, String> {
    let runtime = runtime.with_timeout(LIST_TIMEOUT.min(runtime.timeout()));
    let (version, status) =
        futures::try_join!(runtime.version(), runtime.status()).map_err(|error| report(&error))?;
    Ok(convert::health_check(version, status))
}
