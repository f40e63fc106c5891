//! What is sent to the driver of a volume.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::prerequisites::{PublishMode, driver, publish_context, registered, secret_data, tokens};
use crate::core::api_objects::{ClaimResize, CsiDriverSpec, CsiSource, PersistentVolume};
use crate::core::blocked::Blocked;
use crate::core::csi_volume::{CsiVolume, InlineVolume, RegisteredDriver, attachment_name, sha256};
use crate::core::layout::{self, VolumeKey};
use crate::core::lookup::Lookup;
use crate::core::mount_plan::MountPlan;
use crate::core::pod::PodContext;
use crate::core::resize::{Expansion, VolumeSize, volume_size};

/// The plan of a persistent volume of a CSI driver.
pub fn persistent(
    persistent: &PersistentVolume,
    source: &CsiSource,
    claim: &ClaimResize,
    read_only: bool,
    pod_context: &PodContext,
    lookup: &impl Lookup,
) -> Result<Arc<MountPlan>, Blocked> {
    // All prerequisites are requested at once, whichever is missing first.
    let stage_secrets = secret_data(source.stage_secret.as_ref(), lookup);
    let publish_secrets = secret_data(source.publish_secret.as_ref(), lookup);
    let expand_secrets = secret_data(source.expand_secret.as_ref(), lookup);
    let driver = driver(&source.driver, lookup)?;
    check_lifecycle_mode(&source.driver, driver.as_ref(), "Persistent")?;
    let driver = driver.unwrap_or_else(default_driver);
    // Upstream sends no tokens for block devices.
    let tokens = match persistent.block {
        true => Ok(None),
        false => tokens(&driver, pod_context, lookup),
    };
    let attachment = driver
        .attach
        .then(|| attachment_name(&source.handle, &source.driver, lookup.node_name()));
    let limit_changes = driver.allocatable_update_period.is_some();
    let publish_context = attachment
        .as_ref()
        .map(|name| publish_context(name, source, limit_changes, lookup));
    let mode = match persistent.block {
        true => PublishMode::Mapped,
        false => PublishMode::Mounted,
    };
    let registered = registered(&source.driver, mode, lookup)?;
    let mut csi = base_volume(source, &driver, registered, pod_context, false);
    csi.name.clone_from(&persistent.name);
    csi.stages = registered.stage_unstage;
    // The `readOnly` of the persistent volume is for the driver's controller.
    csi.read_only = read_only;
    csi.block = persistent.block;
    let modes = &persistent.access_modes;
    let mode = modes.first().map_or("ReadWriteOnce", String::as_str);
    csi.access_mode = access_mode(mode, registered.single_node_multi_writer);
    csi.mount_options.clone_from(&persistent.mount_options);
    set_fs_group(&mut csi, &driver, registered, modes, pod_context.gid);
    csi.attachment = attachment.unwrap_or_default();
    csi.publish_context = publish_context.transpose()?.unwrap_or_default();
    csi.stage_secrets = stage_secrets?;
    csi.publish_secrets = publish_secrets?;
    csi.tokens = tokens?;
    csi.size = volume_size(claim, &persistent.capacity, read_only);
    if !registered.expand_volume && csi.size.expansion != Expansion::ReadOnly {
        csi.size = VolumeSize {
            bytes: claim.capacity,
            expansion: Expansion::None,
        };
    }
    if csi.size.expansion.is_requested() {
        csi.expand_secrets = expand_secrets?;
    }
    Ok(Arc::new(MountPlan::Csi(Box::new(csi))))
}

/// The plan of an inline volume.
pub fn inline(
    volume: &str,
    spec: &InlineVolume,
    lookup: &impl Lookup,
) -> (VolumeKey, Result<Arc<MountPlan>, Blocked>) {
    let key = (layout::CSI.to_owned(), volume.to_owned());
    let plan = || {
        let source = &spec.source;
        let driver = driver(&source.driver, lookup)?;
        check_lifecycle_mode(&source.driver, driver.as_ref(), "Ephemeral")?;
        let driver = driver.unwrap_or_else(default_driver);
        let tokens = tokens(&driver, &spec.pod_context, lookup);
        let registered = registered(&source.driver, PublishMode::Inline, lookup)?;
        let mut csi = base_volume(source, &driver, registered, &spec.pod_context, true);
        csi.name = volume.to_owned();
        let text = format!("{}{volume}", spec.pod_context.pod.uid);
        csi.handle = format!("csi-{}", sha256(&text));
        csi.access_mode = access_mode("ReadWriteOnce", registered.single_node_multi_writer);
        let modes = ["ReadWriteOnce".to_owned()];
        set_fs_group(&mut csi, &driver, registered, &modes, spec.pod_context.gid);
        csi.publish_secrets = secret_data(source.publish_secret.as_ref(), lookup)?;
        csi.tokens = tokens?;
        Ok(Arc::new(MountPlan::Csi(Box::new(csi))))
    };
    (key, plan())
}

fn base_volume(
    source: &CsiSource,
    driver: &CsiDriverSpec,
    registered: &RegisteredDriver,
    pod_context: &PodContext,
    ephemeral: bool,
) -> CsiVolume {
    let mut pod_info = BTreeMap::new();
    if driver.pod_info {
        let PodContext {
            pod,
            service_account,
            ..
        } = pod_context;
        let entries = [
            ("pod.name", pod.name.as_str()),
            ("pod.namespace", &pod.namespace),
            ("pod.uid", &pod.uid),
            ("serviceAccount.name", service_account),
            ("ephemeral", if ephemeral { "true" } else { "false" }),
        ];
        let entries =
            entries.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()));
        pod_info.extend(entries);
    }
    CsiVolume {
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
        on_root_mismatch: pod_context.on_root_mismatch,
        mount_group: None,
        block: false,
        tokens: None,
        tokens_in_secrets: driver.tokens_in_secrets,
        republish: driver.republish,
        size: VolumeSize::default(),
        expand_secrets: BTreeMap::new(),
    }
}

/// The defaults of a driver without a CSIDriver object, as upstream.
fn default_driver() -> CsiDriverSpec {
    CsiDriverSpec {
        attach: true,
        ..CsiDriverSpec::default()
    }
}

/// Whether the driver supports a lifecycle mode: `Persistent` or `Ephemeral`.
fn check_lifecycle_mode(
    name: &str,
    driver: Option<&CsiDriverSpec>,
    mode: &str,
) -> Result<(), Blocked> {
    let detail = match driver {
        None if mode == "Persistent" => return Ok(()),
        None => "(no CSIDriver object)".to_owned(),
        Some(driver)
            if driver
                .lifecycle_modes
                .iter()
                .any(|supported| supported == mode) =>
        {
            return Ok(());
        }
        Some(driver) => {
            let modes = driver
                .lifecycle_modes
                .iter()
                .map(|mode| format!("{mode:?}"));
            let modes = modes.collect::<Vec<_>>().join(" ");
            format!("(only supports [{modes}])")
        }
    };
    Err(Blocked::FailedIn(
        "MountVolume.SetUp failed",
        format!(
            "kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode \"{mode}\" not supported by driver {name} {detail}"
        ),
    ))
}

/// Leaves `fsGroup` to the driver, to this node, or ignores it.
fn set_fs_group(
    csi: &mut CsiVolume,
    driver: &CsiDriverSpec,
    registered: &RegisteredDriver,
    modes: &[String],
    gid: Option<u32>,
) {
    if registered.volume_mount_group {
        csi.mount_group = gid;
        return;
    }
    let read_write_once = |mode: &String| mode == "ReadWriteOnce" || mode == "ReadWriteOncePod";
    let read_write_once = modes.iter().any(read_write_once);
    let by_node = match driver.group_policy.as_str() {
        "None" => false,
        "File" => true,
        _ => read_write_once && !csi.fs_type.is_empty(),
    };
    csi.gid = gid.filter(|_| by_node && !csi.read_only && !csi.block);
}

/// CSI's number of an access mode, mapped as upstream.
fn access_mode(mode: &str, single_node_multi_writer: bool) -> i32 {
    match (mode, single_node_multi_writer) {
        ("ReadOnlyMany", _) => 3,
        ("ReadWriteMany", _) => 5,
        ("ReadWriteOncePod", true) => 6,
        ("ReadWriteOnce", true) => 7,
        _ => 1,
    }
}
