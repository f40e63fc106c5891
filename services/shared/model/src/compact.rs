//! Statuses without spare capacity: a vector that grows has room for four elements, and the status
//! of a container alone takes 750 bytes. Every pod has one, for as long as it exists.

use k8s_openapi::api::core::v1::PodStatus;

/// Drops spare capacity of a pod's status.
pub fn pod_status(status: &mut PodStatus) {
    shrink(&mut status.conditions);
    shrink(&mut status.pod_ips);
    shrink(&mut status.host_ips);
    for statuses in [
        &mut status.init_container_statuses,
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ] {
        for container in statuses.iter_mut().flatten() {
            shrink(&mut container.volume_mounts);
            let resources = container.allocated_resources_status.iter_mut().flatten();
            resources.for_each(|resource| shrink(&mut resource.resources));
            shrink(&mut container.allocated_resources_status);
        }
        shrink(statuses);
    }
}

fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_has_spare_capacity_afterwards() {
        let text = json!({
            "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{
                "name": "a", "ready": true, "restartCount": 0, "image": "", "imageID": "",
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
                "allocatedResourcesStatus": [{ "name": "x", "resources": [{ "resourceID": "1" }] }],
            }],
        });
        let mut status: PodStatus = serde_json::from_str(&text.to_string()).unwrap();
        pod_status(&mut status);
        let containers = status.container_statuses.as_ref().unwrap();
        assert_eq!(status.conditions.as_ref().unwrap().capacity(), 1);
        assert_eq!(containers.capacity(), 1);
        assert_eq!(containers[0].volume_mounts.as_ref().unwrap().capacity(), 1);
        let devices = containers[0].allocated_resources_status.as_ref().unwrap();
        assert_eq!(devices.capacity(), 1);
        assert_eq!(devices[0].resources.as_ref().unwrap().capacity(), 1);
        assert_eq!(serde_json::to_value(&status).unwrap(), text);
    }
}
