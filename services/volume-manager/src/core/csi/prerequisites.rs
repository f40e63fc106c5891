//! The prerequisites of a CSI volume: driver, attachment, secrets, tokens.

use std::collections::BTreeMap;

use serde_json::json;

use crate::core::api_objects::{CsiDriverSpec, CsiSource, ObjectDetails};
use crate::core::blocked::Blocked;
use crate::core::bytes::Bytes;
use crate::core::csi_volume::{RegisteredDriver, unique_name};
use crate::core::lookup::Lookup;
use crate::core::pod::PodContext;
use crate::core::reference_key::{ObjectKind, ReferenceKey};
use crate::core::references::ObjectState;
use crate::core::tokens::PodTokenKey;

/// How a volume reaches its pod: it decides upstream's name of the step that fails.
#[derive(Debug, Clone, Copy)]
pub(super) enum PublishMode {
    /// A file system, staged on the node first.
    Mounted,
    /// A file system of this pod only.
    Inline,
    /// A block device.
    Mapped,
}

impl PublishMode {
    fn failed_step(self) -> &'static str {
        match self {
            PublishMode::Mounted => "MountVolume.MountDevice failed",
            PublishMode::Inline => "MountVolume.SetUp failed",
            PublishMode::Mapped => "MapVolume.SetUpDevice failed",
        }
    }
}

/// The registered driver of this name.
pub(super) fn registered<'a>(
    name: &str,
    mode: PublishMode,
    lookup: &'a impl Lookup,
) -> Result<&'a RegisteredDriver, Blocked> {
    lookup.registered(name).ok_or_else(|| {
        let call = match mode {
            PublishMode::Mounted => "attacher.MountDevice failed to create newCsiDriverClient",
            PublishMode::Inline => "mounter.SetUpAt failed to get CSI client",
            PublishMode::Mapped => "blockMapper.SetUpDevice failed to get CSI client",
        };
        let message = format!(
            "kubernetes.io/csi: {call}: driver name {name} not found in the list of registered CSI drivers"
        );
        Blocked::MissingFor(mode.failed_step(), message)
    })
}

/// The CSIDriver object of a driver.
pub fn driver_key(name: &str) -> ReferenceKey {
    ReferenceKey::cluster_scoped(ObjectKind::CsiDriver, name)
}

/// The CSIDriver object of a driver, if it has one.
///
/// # Errors
/// When the object has not been received.
pub fn driver(name: &str, lookup: &impl Lookup) -> Result<Option<CsiDriverSpec>, Blocked> {
    let key = driver_key(name);
    match lookup.object(&key) {
        ObjectState::Present(object) => match &object.details {
            ObjectDetails::CsiDriver(driver) => Ok(Some(driver.clone())),
            _ => Err(Blocked::Failed(format!("{key} is not a CSIDriver"))),
        },
        ObjectState::Absent => Ok(None),
        ObjectState::NotSynced => Err(Blocked::Waiting(key.not_synced())),
        ObjectState::Unknown(error) | ObjectState::Invalid(error) => {
            Err(Blocked::Missing(error.clone()))
        }
    }
}

/// The publish context of an attached volume. `limit_changes` says that the driver's limit of
/// volumes is refreshed.
pub(super) fn publish_context(
    attachment: &str,
    source: &CsiSource,
    limit_changes: bool,
    lookup: &impl Lookup,
) -> Result<BTreeMap<String, String>, Blocked> {
    let key = ReferenceKey::cluster_scoped(ObjectKind::Attachment, attachment);
    let not_attached = |message: String| Err(Blocked::NotAttached(message));
    let CsiSource { driver, handle, .. } = source;
    let attachment = lookup.object(&key);
    // The attach-detach controller may detach a volume that is not in the Node's status.
    let name = unique_name(driver, handle);
    if !lookup
        .node_info()
        .is_some_and(|node| node.volumes_in_use.contains(&name))
    {
        return Err(Blocked::Waiting(format!(
            "waiting for the Node's status to say that volume {name} is in use"
        )));
    }
    match attachment {
        ObjectState::Present(object) => match &object.details {
            ObjectDetails::Attachment(attachment) if attachment.attached => {
                Ok(attachment.metadata.clone())
            }
            ObjectDetails::Attachment(attachment) if attachment.limit_reached && limit_changes => {
                let error = attachment.error.as_deref().unwrap_or_default();
                Err(Blocked::LimitReached {
                    driver: driver.clone(),
                    message: format!("attachment of volume {handle} failed: {error}"),
                })
            }
            ObjectDetails::Attachment(attachment) => not_attached(match &attachment.error {
                Some(error) => format!("attachment of volume {handle} failed: {error}"),
                None => format!("volume {handle} is being attached by driver {driver}"),
            }),
            _ => Err(Blocked::Failed(format!("{key} is not a VolumeAttachment"))),
        },
        ObjectState::Absent => not_attached(format!(
            "volume {handle} is not attached by driver {driver}"
        )),
        ObjectState::NotSynced => Err(Blocked::Waiting(key.not_synced())),
        ObjectState::Unknown(error) | ObjectState::Invalid(error) => not_attached(error.clone()),
    }
}

/// The data of a Secret, by namespace and name.
pub(super) fn secret_data(
    secret: Option<&(String, String)>,
    lookup: &impl Lookup,
) -> Result<BTreeMap<String, Bytes>, Blocked> {
    let Some((namespace, name)) = secret else {
        return Ok(BTreeMap::new());
    };
    let key = ReferenceKey {
        kind: ObjectKind::Secret,
        namespace: namespace.clone(),
        name: name.clone(),
        cluster: true,
    };
    match lookup.object(&key) {
        ObjectState::Present(object) => Ok(object.data.clone()),
        ObjectState::NotSynced => Err(Blocked::Waiting(key.not_synced())),
        ObjectState::Absent => Err(Blocked::Missing(format!("secret \"{name}\" not found"))),
        ObjectState::Unknown(error) | ObjectState::Invalid(error) => {
            Err(Blocked::Missing(error.clone()))
        }
    }
}

/// The name in the Node's `volumesInUse` of a volume that has to be attached.
pub fn attachable(source: &CsiSource, lookup: &impl Lookup) -> Option<String> {
    let driver = driver(&source.driver, lookup).ok()?;
    let attach = driver.is_none_or(|driver| driver.attach);
    attach.then(|| unique_name(&source.driver, &source.handle))
}

/// The lifetime of a token in seconds, unless the driver requests another: the API's default.
const EXPIRATION_SECONDS: i64 = 3600;

/// The service account tokens that a driver requests, encoded as drivers expect them.
pub(super) fn tokens(
    driver: &CsiDriverSpec,
    pod_context: &PodContext,
    lookup: &impl Lookup,
) -> Result<Option<Bytes>, Blocked> {
    // All are requested at once, whichever is missing first.
    let issued: Vec<_> = driver
        .tokens
        .iter()
        .map(|(audience, expiration_seconds)| {
            let key = PodTokenKey {
                uid: pod_context.pod.uid.clone(),
                namespace: pod_context.pod.namespace.clone(),
                pod: pod_context.pod.name.clone(),
                service_account: pod_context.service_account.clone(),
                audience: audience.clone(),
                expiration_seconds: expiration_seconds.unwrap_or(EXPIRATION_SECONDS),
            };
            (audience, lookup.token(&key))
        })
        .collect();
    if issued.is_empty() {
        return Ok(None);
    }
    let mut all = serde_json::Map::new();
    for (audience, issued) in issued {
        let issued = issued.map_err(|blocked| match blocked {
            // The driver has yet to be called then.
            Blocked::Imminent(message) => Blocked::Waiting(message),
            other => other,
        })?;
        let expires = issued.expires_at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let token = String::from_utf8_lossy(&issued.token.0).into_owned();
        let status = json!({"token": token, "expirationTimestamp": expires});
        all.insert(audience.clone(), status);
    }
    let text = serde_json::Value::Object(all).to_string();
    Ok(Some(text.into_bytes().into()))
}
