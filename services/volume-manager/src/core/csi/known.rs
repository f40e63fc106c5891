//! What is known of that which a driver's volume needs.

use std::collections::BTreeMap;

use serde_json::json;

use super::{ForPod, Registered, sha256};
use crate::core::facts::{CsiSource, Driver, Facts};
use crate::core::objects::{Bytes, ObjectKey, ObjectKind, ObjectState};
use crate::core::payload::{Blocked, Known};
use crate::core::tokens::TokenKey;

/// What a driver's volume comes to be on the way to its pod: upstream's words for the step that
/// cannot be taken.
#[derive(Debug, Clone, Copy)]
pub(super) enum Way {
    /// A file system, mounted for the node first.
    Mounted,
    /// A file system of the pod alone.
    Inline,
    /// A device.
    Mapped,
}

impl Way {
    fn step(self) -> &'static str {
        match self {
            Way::Mounted => "MountVolume.MountDevice failed",
            Way::Inline => "MountVolume.SetUp failed",
            Way::Mapped => "MapVolume.SetUpDevice failed",
        }
    }
}

pub(super) fn registered<'a>(
    name: &str,
    way: Way,
    known: &'a impl Known,
) -> Result<&'a Registered, Blocked> {
    known.registered(name).ok_or_else(|| {
        let asked = match way {
            Way::Mounted => "attacher.MountDevice failed to create newCsiDriverClient",
            Way::Inline => "mounter.SetUpAt failed to get CSI client",
            Way::Mapped => "blockMapper.SetUpDevice failed to get CSI client",
        };
        let why = format!(
            "kubernetes.io/csi: {asked}: driver name {name} not found in the list of registered CSI drivers"
        );
        Blocked::Lacking(way.step(), why)
    })
}

/// What the cluster says of a driver: the object.
pub fn object(name: &str) -> ObjectKey {
    cluster(ObjectKind::CsiDriver, name)
}

/// What the cluster says of a driver, if it says anything.
///
/// # Errors
/// When it is not known, or no driver.
pub fn driver(name: &str, known: &impl Known) -> Result<Option<Driver>, Blocked> {
    let key = object(name);
    match known.object(&key) {
        ObjectState::Present(object) => match &object.facts {
            Facts::Driver(driver) => Ok(Some(driver.clone())),
            _ => Err(Blocked::Failed(format!("{key} is no driver"))),
        },
        ObjectState::Absent => Ok(None),
        ObjectState::Unheard => Err(Blocked::Waiting(format!("waiting to hear of {key}"))),
        ObjectState::Unknown(why) | ObjectState::Broken(why) => Err(Blocked::Missing(why.clone())),
    }
}

pub(super) fn attached(
    name: &str,
    source: &CsiSource,
    is_recounted: bool,
    known: &impl Known,
) -> Result<BTreeMap<String, String>, Blocked> {
    let key = cluster(ObjectKind::Attachment, name);
    let waits = |why: String| Err(Blocked::Unattached(why));
    let CsiSource { driver, handle, .. } = source;
    let attachment = known.object(&key);
    // The cluster's controller may take away what the Node's status does not say is in use.
    let name = in_use_name(driver, handle);
    if !known
        .place()
        .is_some_and(|node| node.in_use.contains(&name))
    {
        return Err(Blocked::Waiting(format!(
            "waiting for the Node's status to say that volume {name} is in use"
        )));
    }
    match attachment {
        ObjectState::Present(object) => match &object.facts {
            Facts::Attachment(attachment) if attachment.attached => Ok(attachment.metadata.clone()),
            Facts::Attachment(attachment) if attachment.exhausted && is_recounted => {
                let why = attachment.error.as_deref().unwrap_or_default();
                Err(Blocked::Exhausted {
                    driver: driver.clone(),
                    why: format!("attachment of volume {handle} failed: {why}"),
                })
            }
            Facts::Attachment(attachment) => waits(match &attachment.error {
                Some(why) => format!("attachment of volume {handle} failed: {why}"),
                None => format!("volume {handle} is being attached by driver {driver}"),
            }),
            _ => Err(Blocked::Failed(format!("{key} is no attachment"))),
        },
        ObjectState::Absent => waits(format!(
            "volume {handle} is not attached by driver {driver}"
        )),
        ObjectState::Unheard => Err(Blocked::Waiting(format!("waiting to hear of {key}"))),
        ObjectState::Unknown(why) | ObjectState::Broken(why) => waits(why.clone()),
    }
}

pub(super) fn secret(
    named: Option<&(String, String)>,
    known: &impl Known,
) -> Result<BTreeMap<String, Bytes>, Blocked> {
    let Some((namespace, name)) = named else {
        return Ok(BTreeMap::new());
    };
    let key = ObjectKey {
        kind: ObjectKind::Secret,
        namespace: namespace.clone(),
        name: name.clone(),
        cluster: true,
    };
    match known.object(&key) {
        ObjectState::Present(object) => Ok(object.data.clone()),
        ObjectState::Unheard => Err(Blocked::Waiting(format!("waiting to hear of {key}"))),
        ObjectState::Absent => Err(Blocked::Missing(format!("secret \"{name}\" not found"))),
        ObjectState::Unknown(why) | ObjectState::Broken(why) => Err(Blocked::Missing(why.clone())),
    }
}

fn cluster(kind: ObjectKind, name: &str) -> ObjectKey {
    ObjectKey {
        kind,
        namespace: String::new(),
        name: name.to_owned(),
        cluster: true,
    }
}

/// The name of the attachment of a volume to a node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&format!("{handle}{driver}{node}")))
}

/// The name of a volume in the Node's status.
pub fn in_use_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// Its name in the Node's status, if a volume is one that has to be attached.
pub fn attachable(source: &CsiSource, known: &impl Known) -> Option<String> {
    let driver = driver(&source.driver, known).ok()?;
    let attach = driver.is_none_or(|driver| driver.attach);
    attach.then(|| in_use_name(&source.driver, &source.handle))
}

/// How long a token lives whose driver says nothing of that, in seconds: the API's default.
const LIFE: i64 = 3600;

/// The tokens of the pod's account that a driver wants, as it reads them.
pub(super) fn tokens(
    driver: &Driver,
    for_pod: &ForPod,
    known: &impl Known,
) -> Result<Option<Bytes>, Blocked> {
    // All are asked for at once, whichever is missing first.
    let issued: Vec<_> = driver
        .tokens
        .iter()
        .map(|(audience, life)| {
            let key = TokenKey {
                uid: for_pod.pod.uid.clone(),
                namespace: for_pod.pod.namespace.clone(),
                pod: for_pod.pod.name.clone(),
                service_account: for_pod.service_account.clone(),
                audience: audience.clone(),
                expiration_seconds: life.unwrap_or(LIFE),
            };
            (audience, known.token(&key))
        })
        .collect();
    if issued.is_empty() {
        return Ok(None);
    }
    let mut all = serde_json::Map::new();
    for (audience, issued) in issued {
        let issued = issued.map_err(|why| match why {
            // Its driver has yet to be asked then.
            Blocked::Coming(what) => Blocked::Waiting(what),
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
