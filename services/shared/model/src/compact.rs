//! Parsed objects without spare capacity: a vector that grows has room for four elements, and the status
//! of a container alone takes 750 bytes. Every pod has these, for as long as it exists.

use k8s_openapi::api::core::v1::{Container, PodSpec, PodStatus, Volume, VolumeProjection};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Drops spare capacity of a pod's metadata.
pub(crate) fn metadata(metadata: &mut ObjectMeta) {
    shrink(&mut metadata.finalizers);
    shrink(&mut metadata.managed_fields);
    shrink(&mut metadata.owner_references);
}

/// Drops spare capacity of a pod's spec.
pub(crate) fn pod_spec(spec: &mut PodSpec) {
    let init = spec.init_containers.iter_mut().flatten();
    init.chain(&mut spec.containers).for_each(container);
    spec.volumes.iter_mut().flatten().for_each(volume);
    shrink(&mut spec.init_containers);
    spec.containers.shrink_to_fit();
    shrink(&mut spec.volumes);
    shrink(&mut spec.tolerations);
}

fn volume(volume: &mut Volume) {
    if let Some(config_map) = &mut volume.config_map {
        shrink(&mut config_map.items);
    }
    if let Some(secret) = &mut volume.secret {
        shrink(&mut secret.items);
    }
    if let Some(downward_api) = &mut volume.downward_api {
        shrink(&mut downward_api.items);
    }
    if let Some(projected) = &mut volume.projected {
        projected.sources.iter_mut().flatten().for_each(projection);
        shrink(&mut projected.sources);
    }
}

fn projection(source: &mut VolumeProjection) {
    if let Some(config_map) = &mut source.config_map {
        shrink(&mut config_map.items);
    }
    if let Some(secret) = &mut source.secret {
        shrink(&mut secret.items);
    }
    if let Some(downward_api) = &mut source.downward_api {
        shrink(&mut downward_api.items);
    }
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
            "volumes": [{ "name": "v", "projected": { "sources": [
                { "configMap": { "name": "c", "items": [{ "key": "a", "path": "a" }] } },
                { "downwardAPI": { "items": [{ "path": "a" }] } },
            ] } }],
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
        assert_eq!(sources.capacity(), 2);
        let items = sources[0].config_map.as_ref().unwrap().items.as_ref();
        assert_eq!(items.unwrap().capacity(), 1);
        let items = sources[1].downward_api.as_ref().unwrap().items.as_ref();
        assert_eq!(items.unwrap().capacity(), 1);
        assert_eq!(serde_json::to_value(&spec).unwrap(), text);

        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" });
        let text = json!({ "finalizers": ["example.com/x"], "ownerReferences": [owner] });
        let mut metadata: ObjectMeta = serde_json::from_str(&text.to_string()).unwrap();
        super::metadata(&mut metadata);
        assert_eq!(metadata.finalizers.as_ref().unwrap().capacity(), 1);
        assert_eq!(metadata.owner_references.as_ref().unwrap().capacity(), 1);
        assert_eq!(serde_json::to_value(&metadata).unwrap(), text);

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
