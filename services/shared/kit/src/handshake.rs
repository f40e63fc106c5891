//! The check of a peer at each new connection: whether it serves the levels of the wire that this
//! build needs. A service may be replaced by another build under its name, older ones included, and
//! what an older one does not say would otherwise be taken for something that is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use polylet_wire::lifecycle::v1::lifecycle_service_client::LifecycleServiceClient;
use polylet_wire::lifecycle::v1::{Api, GetInfoRequest};
use tonic::{Code, Status};

use crate::HealthConditions;
use crate::descriptor::Dependency;

/// The health condition of a service whose peer is too old.
const INCOMPATIBLE: &str = "PeerIncompatible";

/// Checks a peer of a command once: whether it serves what `calls` need of it.
///
/// # Errors
/// `FailedPrecondition` with the reason if it does not; otherwise that of the call.
pub async fn check_peer(
    channel: &tonic::transport::Channel,
    peer: &'static str,
    calls: &[Dependency],
) -> Result<(), Status> {
    Handshake::new(peer, calls).check(channel).await
}

/// The state of the check with one peer.
#[derive(Default)]
pub(crate) struct Handshake {
    peer: &'static str,
    required: Vec<(&'static str, u32)>,
    /// Number of the present connection; zero before the first.
    connection: Arc<AtomicU64>,
    /// Number of the last connection whose peer is compatible.
    compatible: AtomicU64,
    /// Held during a check, so that concurrent calls share one.
    checking: tokio::sync::Mutex<()>,
}

impl Handshake {
    /// The check of what `calls` needs from a peer.
    pub(crate) fn new(peer: &'static str, calls: &[Dependency]) -> Handshake {
        let of_peer = calls.iter().filter(|call| call.service == peer);
        Handshake {
            peer,
            required: of_peer.map(|call| (call.package, call.level)).collect(),
            ..Handshake::default()
        }
    }

    /// Counts the connections: raised by the connector.
    pub(crate) fn connections(&self) -> Arc<AtomicU64> {
        self.connection.clone()
    }

    /// Checks the peer, unless that of the present connection is known to be compatible. An error is
    /// to be returned to the caller. To be called before each request, and after it, as a connection
    /// that is found broken is replaced by the request itself.
    pub(crate) async fn check(&self, channel: &tonic::transport::Channel) -> Result<(), Status> {
        if self.required.is_empty() || self.is_compatible() {
            return Ok(());
        }
        let _checking = self.checking.lock().await;
        if self.is_compatible() {
            return Ok(());
        }
        let mut lifecycle = LifecycleServiceClient::new(channel.clone());
        let served = match lifecycle.get_info(GetInfoRequest {}).await {
            Ok(info) => Some(info.into_inner().serves),
            // Not a service process, which all serve it.
            Err(status) if status.code() == Code::Unimplemented => None,
            Err(status) => return Err(status),
        };
        let missing = served.and_then(|served| self.missing(&served));
        let conditions = HealthConditions::of_process();
        if let Some(missing) = missing {
            conditions.set(INCOMPATIBLE, self.peer, &missing);
            return Err(Status::failed_precondition(missing));
        }
        conditions.clear(INCOMPATIBLE, self.peer);
        let connection = self.connection.load(Ordering::Acquire);
        self.compatible.store(connection, Ordering::Release);
        Ok(())
    }

    fn is_compatible(&self) -> bool {
        let compatible = self.compatible.load(Ordering::Acquire);
        compatible != 0 && compatible == self.connection.load(Ordering::Acquire)
    }

    /// The packages of which the peer serves too low a level.
    fn missing(&self, served: &[Api]) -> Option<String> {
        let level = |package: &str| {
            let api = served.iter().find(|api| api.package == package);
            api.map_or(0, |api| api.level)
        };
        let too_low = self.required.iter().filter_map(|(package, required)| {
            let served = level(package);
            (served < *required)
                .then(|| format!("it serves {package} at level {served}, needed is {required}"))
        });
        let too_low: Vec<String> = too_low.collect();
        let peer = self.peer;
        (!too_low.is_empty()).then(|| {
            let too_low = too_low.join(", ");
            format!("{peer} is too old and not used until it is upgraded: {too_low}")
        })
    }
}
