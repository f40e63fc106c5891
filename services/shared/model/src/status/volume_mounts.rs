//! Volume mounts in the status of a container.

use k8s_openapi::api::core::v1::{Container, VolumeMountStatus};

/// The mounts of a container. `recursive_read_only` is the actual mode, not the requested one.
pub(super) fn volume_mounts(spec: &Container, can_recurse: bool) -> Option<Vec<VolumeMountStatus>> {
    let mounts = spec.volume_mounts.iter().flatten().map(|mount| {
        let read_only = mount.read_only == Some(true);
        let requested = matches!(
            mount.recursive_read_only.as_deref(),
            Some("Enabled" | "IfPossible")
        );
        let is_private = matches!(mount.mount_propagation.as_deref(), None | Some("None"));
        let recursive = if requested && is_private && can_recurse {
            "Enabled"
        } else {
            "Disabled"
        };
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: read_only.then_some(true),
            recursive_read_only: read_only.then(|| recursive.to_owned()),
            volume_status: None,
        }
    });
    super::non_empty_list(mounts.collect())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::VolumeMount;

    use super::*;

    #[test]
    fn recursive_read_only_is_the_actual_mode() {
        let published = |read_only: bool, requested: Option<&str>, can_recurse: bool| {
            let mount = VolumeMount {
                read_only: Some(read_only),
                recursive_read_only: requested.map(Into::into),
                ..VolumeMount::default()
            };
            let spec = Container {
                volume_mounts: Some(vec![mount]),
                ..Container::default()
            };
            volume_mounts(&spec, can_recurse)?
                .pop()?
                .recursive_read_only
        };
        for (requested, can_recurse, expected) in [
            (None, true, "Disabled"),
            (Some("Disabled"), true, "Disabled"),
            (Some("IfPossible"), true, "Enabled"),
            (Some("IfPossible"), false, "Disabled"),
            (Some("Enabled"), true, "Enabled"),
            (Some("Enabled"), false, "Disabled"),
        ] {
            assert_eq!(
                published(true, requested, can_recurse).as_deref(),
                Some(expected),
                "{requested:?} {can_recurse}"
            );
        }
        assert_eq!(published(false, None, true), None);
    }
}
