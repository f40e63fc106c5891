//! Disks: EBS, GCE PD, Azure Disk, Cinder, vSphere.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1 as api;

use super::topology::{Domain, DriverKeys, ZONE, ZONE_BETA};
use super::{AccessModes, Translation};

/// The driver of GCE PD.
pub(super) const GCE_PD: &str = "pd.csi.storage.gke.io";
/// The topology of vSphere, which has regions, too.
pub(super) const VSPHERE_TOPOLOGY: DriverKeys = &[
    (Domain::Zone, "topology.csi.vmware.com/zone"),
    (Domain::Region, "topology.csi.vmware.com/region"),
];
/// In place of an unknown project or zone.
const UNSPECIFIED: &str = "UNSPECIFIED";

pub(super) fn aws_ebs(
    source: &api::AWSElasticBlockStoreVolumeSource,
) -> Result<Translation, String> {
    let handle = ebs_volume_id(&source.volume_id)
        .map_err(|error| format!("failed to translate Kubernetes ID to EBS Volume ID {error}"))?;
    let partition = source.partition.unwrap_or_default().to_string();
    Ok(Translation::new("ebs.csi.aws.com", handle)
        .with_fs_type(source.fs_type.as_ref())
        .with_read_only(source.read_only)
        .with_attributes([("partition", &partition)])
        .with_topology(&[(Domain::Zone, "topology.ebs.csi.aws.com/zone")]))
}

/// `vol-…` of `aws://<zone>/vol-…`, or a bare id.
fn ebs_volume_id(id: &str) -> Result<&str, String> {
    let Some(rest) = id.strip_prefix("aws://") else {
        return Ok(id);
    };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let path = rest.split_once('/').map_or("", |(_zone, path)| path);
    let volume = path.trim_matches('/');
    match volume.starts_with("vol-") && !volume.contains('/') {
        true => Ok(volume),
        false => Err(format!("Invalid format for AWS volume ({id})")),
    }
}

pub(super) fn gce_pd(
    source: &api::GCEPersistentDiskVolumeSource,
    labels: &BTreeMap<String, String>,
) -> Result<Translation, String> {
    let label = |key| labels.get(key).filter(|zone| !zone.is_empty());
    let zones = label(ZONE_BETA).or_else(|| label(ZONE));
    let zones: Vec<&str> = zones.map_or_else(Vec::new, |zones| zones.split("__").collect());
    let disk = &source.pd_name;
    let handle = match zones.as_slice() {
        [] => format!("projects/{UNSPECIFIED}/zones/{UNSPECIFIED}/disks/{disk}"),
        [zone] => format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{disk}"),
        zones => {
            let region = gce_region(zones)
                .map_err(|error| format!("failed to get region from zones: {error}"))?;
            format!("projects/{UNSPECIFIED}/regions/{region}/disks/{disk}")
        }
    };
    let partition = source.partition.filter(|partition| *partition != 0);
    let partition = partition.map(|partition| partition.to_string());
    let mut translation = Translation::new(GCE_PD, &handle)
        .with_fs_type(source.fs_type.as_ref())
        .with_read_only(source.read_only)
        .with_attributes([("partition", &partition.unwrap_or_default())])
        .with_topology(&[(Domain::Zone, "topology.gke.io/zone")]);
    translation.access_modes = AccessModes::OneOnly;
    Ok(translation)
}

/// The region of zones such as `us-central1-a`.
fn gce_region(zones: &[&str]) -> Result<String, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let [locale, region, _] = zone.split('-').collect::<Vec<_>>()[..] else {
            return Err(format!(
                "zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}"
            ));
        };
        regions.insert(format!("{locale}-{region}"));
    }
    let found = format!("{regions:?}");
    let mut regions = regions.into_iter();
    match (regions.next(), regions.next()) {
        (Some(region), None) => Ok(region),
        _ => Err(format!(
            "multiple or no regions gotten from zones, got: {found}"
        )),
    }
}

/// The one access mode that stands for those which the in-tree plugin did not check.
pub(super) fn one_access_mode(modes: &[String]) -> String {
    let once = |mode: &String| mode == "ReadWriteMany" || mode == "ReadWriteOnce";
    let only_reads = !modes.iter().any(once) && modes.iter().any(|mode| mode == "ReadOnlyMany");
    match only_reads {
        true => "ReadOnlyMany".to_owned(),
        false => "ReadWriteOnce".to_owned(),
    }
}

pub(super) fn azure_disk(source: &api::AzureDiskVolumeSource) -> Result<Translation, String> {
    const MANAGED: &str = "Managed";
    if let Some(kind) = &source.kind
        && !kind.eq_ignore_ascii_case(MANAGED)
    {
        return Err(format!("kind({kind}) is not supported in csi migration"));
    }
    let mut translation = Translation::new("disk.csi.azure.com", &source.disk_uri)
        .with_read_only(source.read_only)
        .with_fs_type(source.fs_type.as_ref())
        .with_attributes([("kind", MANAGED)]);
    let optional = [
        ("cachingmode", &source.caching_mode),
        ("fstype", &source.fs_type),
    ];
    let attributes = translation.source.volume_attributes.get_or_insert_default();
    for (key, value) in optional {
        attributes.extend(value.clone().map(|value| (key.to_owned(), value)));
    }
    Ok(translation)
}

pub(super) fn azure_disk_inline(
    source: &api::AzureDiskVolumeSource,
) -> Result<Translation, String> {
    let mut translation = azure_disk(source)?;
    if let Some(attributes) = &mut translation.source.volume_attributes {
        attributes.retain(|key, value| key != "cachingmode" || !value.is_empty());
    }
    Ok(translation)
}

pub(super) fn cinder(volume_id: &str) -> Translation {
    Translation::new("cinder.csi.openstack.org", volume_id)
        .with_attributes([])
        .with_topology(&[(Domain::Zone, "topology.cinder.csi.openstack.org/zone")])
}

pub(super) fn vsphere(source: &api::VsphereVirtualDiskVolumeSource) -> Translation {
    let policy = source.storage_policy_name.as_deref().unwrap_or_default();
    let translation = Translation::new("csi.vsphere.vmware.com", &source.volume_path)
        .with_fs_type(source.fs_type.as_ref());
    match policy {
        "" => translation.with_attributes([]),
        policy => translation.with_attributes([("storagepolicyname", policy)]),
    }
}
