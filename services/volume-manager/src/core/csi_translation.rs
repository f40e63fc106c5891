//! Volumes of the former in-tree plugins of clouds, translated to volumes of their CSI drivers, as
//! upstream's csi-translation-lib. The Node is annotated with these plugins as migrated.

mod disks;
mod shares;
#[cfg(test)]
mod tests;
mod topology;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;

use self::topology::DriverKeys;

/// A translated source, and what else changes with it.
struct Translation {
    source: api::CSIPersistentVolumeSource,
    /// The driver's keys of topology.
    topology: DriverKeys,
    access_modes: AccessModes,
}

/// How the access modes of a persistent volume change.
enum AccessModes {
    Unchanged,
    /// Drivers refuse modes that the in-tree plugin ignored.
    OneOnly,
}

impl Translation {
    fn new(driver: &str, handle: &str) -> Self {
        Self {
            source: api::CSIPersistentVolumeSource {
                driver: driver.to_owned(),
                volume_handle: handle.to_owned(),
                ..api::CSIPersistentVolumeSource::default()
            },
            topology: &[],
            access_modes: AccessModes::Unchanged,
        }
    }

    fn with_fs_type(mut self, fs_type: Option<&String>) -> Self {
        self.source.fs_type = fs_type.cloned();
        self
    }

    fn with_read_only(mut self, read_only: Option<bool>) -> Self {
        self.source.read_only = read_only;
        self
    }

    fn with_attributes<const N: usize>(mut self, attributes: [(&str, &str); N]) -> Self {
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let attributes: BTreeMap<_, _> = attributes.into_iter().map(owned).collect();
        self.source.volume_attributes = Some(attributes);
        self
    }

    fn with_topology(mut self, topology: DriverKeys) -> Self {
        self.topology = topology;
        self
    }
}

/// Translates a persistent volume of an in-tree plugin; leaves all others as they are.
///
/// # Errors
/// Upstream's message of a volume that cannot be translated.
pub(super) fn translate(persistent: &mut api::PersistentVolume) -> Result<(), String> {
    let Some(spec) = &persistent.spec else {
        return Ok(());
    };
    let labels = persistent.metadata.labels.clone().unwrap_or_default();
    let translation = if let Some(source) = &spec.aws_elastic_block_store {
        disks::aws_ebs(source)
    } else if let Some(source) = &spec.gce_persistent_disk {
        disks::gce_pd(source, &labels)
    } else if let Some(source) = &spec.azure_disk {
        disks::azure_disk(source)
    } else if let Some(source) = &spec.azure_file {
        shares::azure_file(source, &persistent.metadata, spec.claim_ref.as_ref())
    } else if let Some(source) = &spec.cinder {
        let cinder = disks::cinder(&source.volume_id);
        Ok(cinder
            .with_fs_type(source.fs_type.as_ref())
            .with_read_only(source.read_only))
    } else if let Some(source) = &spec.vsphere_volume {
        Ok(disks::vsphere(source).with_topology(disks::VSPHERE_TOPOLOGY))
    } else if let Some(source) = &spec.portworx_volume {
        Ok(shares::portworx_persistent(source, &persistent.metadata))
    } else {
        return Ok(());
    };
    let translation = translation.map_err(failed)?;
    let Some(spec) = &mut persistent.spec else {
        return Ok(());
    };
    topology::translate(&mut spec.node_affinity, &labels, translation.topology);
    if let AccessModes::OneOnly = translation.access_modes {
        let modes = spec.access_modes.take();
        spec.access_modes = modes.map(|modes| vec![disks::one_access_mode(&modes)]);
    }
    *spec = api::PersistentVolumeSpec {
        aws_elastic_block_store: None,
        gce_persistent_disk: None,
        azure_disk: None,
        azure_file: None,
        cinder: None,
        vsphere_volume: None,
        portworx_volume: None,
        csi: Some(translation.source),
        ..std::mem::take(spec)
    };
    Ok(())
}

/// Translates an inline volume of an in-tree plugin to a persistent volume of its own; `None` for all
/// other volumes.
pub(super) fn translate_inline(
    volume: &api::Volume,
    namespace: &str,
) -> Option<Result<api::PersistentVolume, String>> {
    const ONCE: &str = "ReadWriteOnce";
    let by_use = |read_only: Option<bool>| match read_only {
        Some(true) => "ReadOnlyMany",
        _ => ONCE,
    };
    let (translation, name, mode) = if let Some(source) = &volume.aws_elastic_block_store {
        (disks::aws_ebs(source), None, ONCE)
    } else if let Some(source) = &volume.gce_persistent_disk {
        let name = format!("{}-{}", disks::GCE_PD, source.pd_name);
        let mode = by_use(source.read_only);
        (disks::gce_pd(source, &BTreeMap::new()), Some(name), mode)
    } else if let Some(source) = &volume.azure_disk {
        let name = source.disk_uri.clone();
        (disks::azure_disk_inline(source), Some(name), ONCE)
    } else if let Some(source) = &volume.azure_file {
        let share = shares::azure_file_inline(source, &volume.name, namespace);
        let name = share.source.volume_handle.clone();
        (Ok(share), Some(name), "ReadWriteMany")
    } else if let Some(source) = &volume.cinder {
        let cinder = disks::cinder(&source.volume_id)
            .with_fs_type(source.fs_type.as_ref())
            .with_read_only(source.read_only);
        (Ok(cinder), None, ONCE)
    } else if let Some(source) = &volume.vsphere_volume {
        (Ok(disks::vsphere(source)), None, ONCE)
    } else if let Some(source) = &volume.portworx_volume {
        let mode = by_use(source.read_only);
        (Ok(shares::portworx(source)), None, mode)
    } else {
        return None;
    };
    Some(translation.map_err(failed).map(|translation| {
        let source = translation.source;
        let default_name = || format!("{}-{}", source.driver, source.volume_handle);
        let mut persistent = api::PersistentVolume::default();
        // Unique for each disk.
        persistent.metadata.name = Some(name.unwrap_or_else(default_name));
        persistent.spec = Some(api::PersistentVolumeSpec {
            csi: Some(source),
            access_modes: Some(vec![mode.to_owned()]),
            volume_mode: Some("Filesystem".to_owned()),
            ..api::PersistentVolumeSpec::default()
        });
        persistent
    }))
}

fn failed(error: String) -> String {
    format!("failed to translate in-tree pv to CSI: {error}")
}
