//! The message of an evicted pod, and the annotations of its event.

use super::*;

#[test]
fn message_blames_what_is_above_its_request() {
    let config = config(&[("nodefs.inodesFree", "5%"), ("nodefs.available", "10%")]);
    let full = Observations::from([
        (Signal::NodeFsInodesFree, observation(2000, 16_384_000)),
        (Signal::NodeFsAvailable, observation(1500, 10_000)),
    ]);
    let threshold = |signal| {
        let found = config.thresholds.iter().find(|t| t.signal == signal);
        found.cloned().unwrap()
    };
    let mut big = pod("big", 0, 0, Some(MI));
    big.pod_level_memory = Some(requested(MI, "1024Ki"));
    big.usage = big.usage.map(|usage| PodUsage {
        files: Some(FileUsage::default()),
        ..usage
    });
    big.containers = vec![
        ContainerUsage {
            name: "app".to_owned(),
            storage: Some(3 * MI),
            storage_request: requested(2 * MI, "2048Ki"),
            ..ContainerUsage::default()
        },
        ContainerUsage {
            name: "sidecar".to_owned(),
            storage: Some(1500),
            ..ContainerUsage::default()
        },
    ];
    let evicted = |signal, pod: &Candidate| {
        let pods = std::slice::from_ref(pod);
        evict(&config, &threshold(signal), &full, pods).unwrap()
    };
    // Quantities are canonical: binary for bytes and for fractions of a capacity, decimal for counts.
    let disk = evicted(Signal::NodeFsAvailable, &big);
    assert_eq!(
        disk.message,
        "The node was low on resource: ephemeral-storage. Threshold quantity: 1k, available: 1500. \
         Container app was using 3Mi, request is 2048Ki, has larger consumption of ephemeral-storage. \
         Container sidecar was using 1500, request is 0, has larger consumption of ephemeral-storage. "
    );
    assert_eq!(
        disk.event_annotations["offending_containers"],
        "app,sidecar"
    );
    assert_eq!(
        disk.event_annotations["offending_containers_usage"],
        "3Mi,1500"
    );
    let inodes = evicted(Signal::NodeFsInodesFree, &big);
    assert_eq!(
        inodes.message,
        "The node was low on resource: inodes. Threshold quantity: 819200, available: 2k. "
            .replace("819200", "800Ki")
    );
    let memory = hard(&[("memory.available", "2Gi")]);
    let low = Observations::from([(Signal::MemoryAvailable, observation(MI, 1000 * MI))]);
    let pods = std::slice::from_ref(&big);
    let memory = evict(&config, &memory[0], &low, pods).unwrap();
    assert_eq!(
        memory.message,
        "The node was low on resource: memory. Threshold quantity: 2Gi, available: 1Mi. \
         Pod big was using 1Mi, request is 1024Ki, has larger consumption of memory. "
    );
    assert_eq!(memory.event_annotations["offending_pod"], "big");
    // A pod that could not be measured is not blamed.
    let unknown = evicted(Signal::NodeFsAvailable, &pod("u", 0, 0, None));
    assert!(
        unknown.message.ends_with("available: 1500. "),
        "{}",
        unknown.message
    );
    assert!(unknown.event_annotations.is_empty());
}
