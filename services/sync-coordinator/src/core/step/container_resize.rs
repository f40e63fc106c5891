use polylet_model::ResizableResources;

/// The kind of resource that is resized; one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ResizedResource {
    /// Request and limit of memory.
    Memory,
    /// Request and limit of CPU.
    Cpu,
}

/// The in-place resize of one running container.
#[derive(Clone, Debug, PartialEq)]
pub struct ContainerResize {
    /// The runtime's id.
    pub id: String,
    /// The container's name.
    pub container: String,
    /// The present resources.
    pub from: ResizableResources,
    /// The allocated resources.
    pub to: ResizableResources,
}

impl ContainerResize {
    /// The containers whose `resource` changes, decreases first.
    pub fn in_order(
        changes: &[ContainerResize],
        resource: ResizedResource,
    ) -> Vec<&ContainerResize> {
        // The limit decides; the request only where the limit stays.
        let amounts = |resources: &ResizableResources| match resource {
            ResizedResource::Memory => (resources.memory_limit, resources.memory_request),
            ResizedResource::Cpu => (resources.cpu_limit, resources.cpu_request),
        };
        let increases = |change: &&ContainerResize| amounts(&change.to) > amounts(&change.from);
        let mut changes: Vec<&ContainerResize> = changes
            .iter()
            .filter(|change| amounts(&change.from) != amounts(&change.to))
            .collect();
        changes.sort_by_key(increases);
        changes
    }
}
