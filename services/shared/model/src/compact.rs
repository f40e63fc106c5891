//! Parsed objects without spare capacity: a vector that grows has room for four elements, and the status
//! of a container alone takes 750 bytes. Every pod has these, for as long as it exists.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus};

/// Drops spare capacity of a pod's spec.
pub(crate) fn pod_spec(spec: &mut PodSpec) {
    let init = spec.init_containers.iter_mut().flatten();
    init.chain(&mut spec.containers).for_each(container);
    for volume in spec.volumes.iter_mut().flatten() {
        if let Some(projected) = &mut volume.projected {
            shrink(&mut projected.sources);
        }
    }
    shrink(&mut spec.init_containers);
    spec.containers.shrink_to_fit();
    shrink(&mut spec.volumes);
    shrink(&mut spec.tolerations);
}

fn container(container: &mut Container) {
    shrink(&mut container.args);
    shrink(&mut container.command);
    shrink(&mut container.env);
    shrink(&mut container.ports);
    shrink(&mut container.volume_mounts);
}

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
            "tolerations": [{ "key": "a" }],
            "volumes": [{ "name": "v", "projected": { "sources": [{}] } }],
            "containers": [{
                "name": "a", "args": ["x"], "env": [{ "name": "A" }],
                "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
            }],
        });
        let mut spec: PodSpec = serde_json::from_str(&text.to_string()).unwrap();
        pod_spec(&mut spec);
        let container = &spec.containers[0];
        assert_eq!(spec.containers.capacity(), 1);
        assert_eq!(spec.tolerations.as_ref().unwrap().capacity(), 1);
        assert_eq!(container.args.as_ref().unwrap().capacity(), 1);
        assert_eq!(container.env.as_ref().unwrap().capacity(), 1);
        assert_eq!(container.volume_mounts.as_ref().unwrap().capacity(), 1);
        let projected = spec.volumes.as_ref().unwrap()[0].projected.as_ref();
        let sources = projected.unwrap().sources.as_ref().unwrap();
        assert_eq!(sources.capacity(), 1);
        assert_eq!(serde_json::to_value(&spec).unwrap(), text);

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
