//! Volumes of CSI drivers: what has to be there before one can be mounted, and what its driver is
//! told then.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::facts::{CsiSource, Driver, Facts, Persistent};
use super::layout;
use super::objects::{Bytes, ObjectKey, ObjectKind, ObjectState};
use super::payload::{Blocked, Known};
use super::plan::Slot;
use super::spec::{PodName, SetUp};

/// A driver that has made itself known on this node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// Its name.
    pub name: String,
    /// Its socket.
    pub endpoint: PathBuf,
    /// Its word for this node.
    pub node_id: String,
    /// Where the node is, as the driver sees it.
    pub topology: BTreeMap<String, String>,
    /// How many volumes it can have here; zero is unknown.
    pub max_volumes: i64,
    /// Volumes are mounted once for the node, and then for each pod.
    pub stages: bool,
    /// It sees to the pod's group itself.
    pub groups: bool,
    /// It knows one writer from many on one node.
    pub single_writers: bool,
}

/// The pod that a volume is for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForPod {
    /// It.
    pub pod: PodName,
    /// Its service account.
    pub service_account: String,
    /// Its group for volumes.
    pub gid: Option<u32>,
}

/// A volume of a driver that the pod's own manifest describes.
#[derive(Debug, Clone, PartialEq)]
pub struct Inline {
    /// The volume.
    pub source: CsiSource,
    /// Whom it is for.
    pub for_pod: ForPod,
}

/// Everything that a driver is told of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Csi {
    /// The driver's name.
    pub driver: String,
    /// Its socket.
    pub endpoint: PathBuf,
    /// Its word for the volume.
    pub handle: String,
    /// The persistent volume's name, or the pod's for an ephemeral one.
    pub name: String,
    /// It is made for the pod, and goes with it.
    pub ephemeral: bool,
    /// Mounted once for the node first.
    pub stages: bool,
    /// The attachment's name, if it had to be attached.
    pub attachment: String,
    /// What the driver's controller told of it.
    pub publish_context: BTreeMap<String, String>,
    /// To stage with.
    pub stage_secrets: BTreeMap<String, Bytes>,
    /// To publish with.
    pub publish_secrets: BTreeMap<String, Bytes>,
    /// Whatever the driver wants to know.
    pub attributes: BTreeMap<String, String>,
    /// The file system.
    pub fs_type: String,
    /// Options for the mount.
    pub mount_options: Vec<String>,
    /// CSI's number of how it may be used.
    pub access_mode: i32,
    /// Nobody may write.
    pub read_only: bool,
    /// The group that this node has to give all in it to.
    pub gid: Option<u32>,
    /// The group that the driver sees to.
    pub mount_group: Option<u32>,
}

impl Csi {
    /// As the Node's status names it, if it has been attached.
    pub fn in_use(&self) -> Option<String> {
        let name = || format!("kubernetes.io/csi/{}^{}", self.driver, self.handle);
        (!self.attachment.is_empty()).then(name)
    }
}

/// A persistent volume of a driver.
pub fn persistent(
    persistent: &Persistent,
    source: &CsiSource,
    read_only: bool,
    for_pod: &ForPod,
    known: &impl Known,
) -> Result<Arc<SetUp>, Blocked> {
    // All that is needed is asked for at once, whatever is missing first.
    let stage_secrets = secret(source.stage_secret.as_ref(), known);
    let publish_secrets = secret(source.publish_secret.as_ref(), known);
    let driver = driver(&source.driver, known)?;
    let attachment = driver
        .attach
        .then(|| attachment_name(&source.handle, &source.driver, known.node()));
    let attached = attachment
        .as_ref()
        .map(|name| attached(name, source, known));
    let registered = registered(&source.driver, known)?;
    let mut csi = common(source, &driver, registered, for_pod, false);
    csi.name.clone_from(&persistent.name);
    csi.stages = registered.stages;
    csi.read_only |= read_only;
    let modes = &persistent.access_modes;
    let mode = modes.first().map_or("ReadWriteOnce", String::as_str);
    csi.access_mode = access_mode(mode, registered.single_writers);
    csi.mount_options.clone_from(&persistent.mount_options);
    group(&mut csi, &driver, registered, modes, for_pod.gid);
    csi.attachment = attachment.unwrap_or_default();
    csi.publish_context = attached.transpose()?.unwrap_or_default();
    csi.stage_secrets = stage_secrets?;
    csi.publish_secrets = publish_secrets?;
    Ok(Arc::new(SetUp::Csi(Box::new(csi))))
}

/// A volume that the pod's manifest describes.
pub fn inline(
    volume: &str,
    spec: &Inline,
    known: &impl Known,
) -> (Slot, Result<Arc<SetUp>, Blocked>) {
    let slot = (layout::CSI.to_owned(), volume.to_owned());
    let set_up = || {
        let source = &spec.source;
        let driver = driver(&source.driver, known)?;
        let registered = registered(&source.driver, known)?;
        let mut csi = common(source, &driver, registered, &spec.for_pod, true);
        csi.name = volume.to_owned();
        let text = format!("{}{volume}", spec.for_pod.pod.uid);
        csi.handle = format!("csi-{}", sha256(&text));
        csi.access_mode = access_mode("ReadWriteOnce", registered.single_writers);
        group(&mut csi, &driver, registered, &[], spec.for_pod.gid);
        csi.publish_secrets = secret(source.publish_secret.as_ref(), known)?;
        Ok(Arc::new(SetUp::Csi(Box::new(csi))))
    };
    (slot, set_up())
}

fn common(
    source: &CsiSource,
    driver: &Driver,
    registered: &Registered,
    for_pod: &ForPod,
    ephemeral: bool,
) -> Csi {
    let mut attributes = source.attributes.clone();
    if driver.pod_info {
        let ForPod {
            pod,
            service_account,
            ..
        } = for_pod;
        let facts = [
            ("pod.name", pod.name.as_str()),
            ("pod.namespace", &pod.namespace),
            ("pod.uid", &pod.uid),
            ("serviceAccount.name", service_account),
            ("ephemeral", if ephemeral { "true" } else { "false" }),
        ];
        let facts = facts.map(|(key, is)| (format!("csi.storage.k8s.io/{key}"), is.to_owned()));
        attributes.extend(facts);
    }
    Csi {
        driver: source.driver.clone(),
        endpoint: registered.endpoint.clone(),
        handle: source.handle.clone(),
        name: String::new(),
        ephemeral,
        stages: false,
        attachment: String::new(),
        publish_context: BTreeMap::new(),
        stage_secrets: BTreeMap::new(),
        publish_secrets: BTreeMap::new(),
        attributes,
        fs_type: source.fs_type.clone(),
        mount_options: Vec::new(),
        access_mode: 0,
        read_only: source.read_only,
        gid: None,
        mount_group: None,
    }
}

/// Who sees to the pod's group: the driver, this node, or nobody.
fn group(
    csi: &mut Csi,
    driver: &Driver,
    registered: &Registered,
    modes: &[String],
    gid: Option<u32>,
) {
    if registered.groups {
        csi.mount_group = gid;
        return;
    }
    let once = modes.iter().any(|mode| mode == "ReadWriteOnce");
    let ours = match driver.group_policy.as_str() {
        "None" => false,
        "File" => true,
        _ => once && !csi.fs_type.is_empty(),
    };
    csi.gid = gid.filter(|_| ours && !csi.read_only);
}

fn registered<'a>(name: &str, known: &'a impl Known) -> Result<&'a Registered, Blocked> {
    known.registered(name).ok_or_else(|| {
        let why = format!("driver name {name} not found in the list of registered CSI drivers");
        Blocked::Missing(why)
    })
}

fn driver(name: &str, known: &impl Known) -> Result<Driver, Blocked> {
    let key = cluster(ObjectKind::CsiDriver, name);
    match known.object(&key) {
        ObjectState::Present(object) => match &object.facts {
            Facts::Driver(driver) => Ok(driver.clone()),
            _ => Err(Blocked::Failed(format!("{key} is no driver"))),
        },
        // Upstream's defaults.
        ObjectState::Absent => Ok(Driver {
            attach: true,
            pod_info: false,
            group_policy: String::new(),
            ephemeral: false,
        }),
        ObjectState::Unheard => Err(Blocked::Waiting(format!("waiting to hear of {key}"))),
        ObjectState::Unknown(why) | ObjectState::Broken(why) => Err(Blocked::Missing(why.clone())),
    }
}

fn attached(
    name: &str,
    source: &CsiSource,
    known: &impl Known,
) -> Result<BTreeMap<String, String>, Blocked> {
    let key = cluster(ObjectKind::Attachment, name);
    let waits = |why: String| Err(Blocked::Unattached(why));
    let CsiSource { driver, handle, .. } = source;
    match known.object(&key) {
        ObjectState::Present(object) => match &object.facts {
            Facts::Attachment(attachment) if attachment.attached => Ok(attachment.metadata.clone()),
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

fn secret(
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

/// CSI's number of an access mode, as upstream chooses it.
fn access_mode(mode: &str, single_writers: bool) -> i32 {
    match (mode, single_writers) {
        ("ReadOnlyMany", _) => 3,
        ("ReadWriteMany", _) => 5,
        ("ReadWriteOncePod", true) => 6,
        ("ReadWriteOnce", true) => 7,
        _ => 1,
    }
}

/// The name of the attachment of a volume to a node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", sha256(&format!("{handle}{driver}{node}")))
}

/// In hexadecimal.
pub fn sha256(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    let bytes = digest.as_ref().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
