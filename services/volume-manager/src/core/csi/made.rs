//! What a driver is told of one volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::known::{Way, attached, driver, registered, secret, tokens};
use super::{Csi, ForPod, Inline, Registered, attachment_name, sha256};
use crate::core::facts::{ClaimGrowth, CsiSource, Driver, Persistent};
use crate::core::growth::{Growth, Size, growth};
use crate::core::layout;
use crate::core::payload::{Blocked, Known};
use crate::core::plan::Slot;
use crate::core::spec::SetUp;

/// A persistent volume of a driver.
pub fn persistent(
    persistent: &Persistent,
    source: &CsiSource,
    claim: &ClaimGrowth,
    read_only: bool,
    for_pod: &ForPod,
    known: &impl Known,
) -> Result<Arc<SetUp>, Blocked> {
    // All that is needed is asked for at once, whatever is missing first.
    let stage_secrets = secret(source.stage_secret.as_ref(), known);
    let publish_secrets = secret(source.publish_secret.as_ref(), known);
    let expand_secrets = secret(source.expand_secret.as_ref(), known);
    let driver = driver(&source.driver, known)?;
    lives(&source.driver, driver.as_ref(), "Persistent")?;
    let driver = driver.unwrap_or_else(unsaid);
    // Of devices nobody tells them, as upstream.
    let tokens = match persistent.block {
        true => Ok(None),
        false => tokens(&driver, for_pod, known),
    };
    let attachment = driver
        .attach
        .then(|| attachment_name(&source.handle, &source.driver, known.node()));
    let attached = attachment
        .as_ref()
        .map(|name| attached(name, source, driver.recounted.is_some(), known));
    let way = match persistent.block {
        true => Way::Mapped,
        false => Way::Mounted,
    };
    let registered = registered(&source.driver, way, known)?;
    let mut csi = common(source, &driver, registered, for_pod, false);
    csi.name.clone_from(&persistent.name);
    csi.stages = registered.stages;
    // What the volume itself says of that is for its controller.
    csi.read_only = read_only;
    csi.block = persistent.block;
    let modes = &persistent.access_modes;
    let mode = modes.first().map_or("ReadWriteOnce", String::as_str);
    csi.access_mode = access_mode(mode, registered.single_writers);
    csi.mount_options.clone_from(&persistent.mount_options);
    group(&mut csi, &driver, registered, modes, for_pod.gid);
    csi.attachment = attachment.unwrap_or_default();
    csi.publish_context = attached.transpose()?.unwrap_or_default();
    csi.stage_secrets = stage_secrets?;
    csi.publish_secrets = publish_secrets?;
    csi.tokens = tokens?;
    csi.size = growth(claim, &persistent.capacity, read_only);
    if !registered.expands && csi.size.growth != Growth::Forbidden {
        csi.size = Size {
            bytes: claim.capacity,
            growth: Growth::None,
        };
    }
    if csi.size.growth.is_asked() {
        csi.expand_secrets = expand_secrets?;
    }
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
        lives(&source.driver, driver.as_ref(), "Ephemeral")?;
        let driver = driver.unwrap_or_else(unsaid);
        let tokens = tokens(&driver, &spec.for_pod, known);
        let registered = registered(&source.driver, Way::Inline, known)?;
        let mut csi = common(source, &driver, registered, &spec.for_pod, true);
        csi.name = volume.to_owned();
        let text = format!("{}{volume}", spec.for_pod.pod.uid);
        csi.handle = format!("csi-{}", sha256(&text));
        csi.access_mode = access_mode("ReadWriteOnce", registered.single_writers);
        let modes = ["ReadWriteOnce".to_owned()];
        group(&mut csi, &driver, registered, &modes, spec.for_pod.gid);
        csi.publish_secrets = secret(source.publish_secret.as_ref(), known)?;
        csi.tokens = tokens?;
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
    let mut pod_info = BTreeMap::new();
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
        pod_info.extend(facts);
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
        attributes: source.attributes.clone(),
        pod_info,
        fs_type: source.fs_type.clone(),
        mount_options: Vec::new(),
        access_mode: 0,
        read_only: source.read_only,
        gid: None,
        on_root_mismatch: for_pod.on_root_mismatch,
        mount_group: None,
        block: false,
        tokens: None,
        tokens_in_secrets: driver.tokens_in_secrets,
        republish: driver.republish,
        size: Size::default(),
        expand_secrets: BTreeMap::new(),
    }
}

/// A driver of which the cluster has no object: upstream's defaults.
fn unsaid() -> Driver {
    Driver {
        attach: true,
        ..Driver::default()
    }
}

/// Whether a driver's volumes may come to be in this way: by a claim, or for one pod.
fn lives(name: &str, driver: Option<&Driver>, mode: &str) -> Result<(), Blocked> {
    let why = match driver {
        None if mode == "Persistent" => return Ok(()),
        None => "(no CSIDriver object)".to_owned(),
        Some(driver) if driver.lifecycle_modes.iter().any(|known| known == mode) => return Ok(()),
        Some(driver) => {
            let modes = driver
                .lifecycle_modes
                .iter()
                .map(|mode| format!("{mode:?}"));
            let modes = modes.collect::<Vec<_>>().join(" ");
            format!("(only supports [{modes}])")
        }
    };
    Err(Blocked::Refused(
        "MountVolume.SetUp failed",
        format!(
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \"{mode}\" not supported by driver {name} {why}"
        ),
    ))
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
    let once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    let once = modes.iter().any(once);
    let ours = match driver.group_policy.as_str() {
        "None" => false,
        "File" => true,
        _ => once && !csi.fs_type.is_empty(),
    };
    csi.gid = gid.filter(|_| ours && !csi.read_only && !csi.block);
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
