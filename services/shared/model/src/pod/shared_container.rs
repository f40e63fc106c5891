//! Containers that keep their manifest alive.

use std::fmt;
use std::ops::Deref;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Container;

use super::{ContainerKind, Manifest, kind_of_init};

/// A container inside a shared manifest. It is not copied, as its environment may be a megabyte.
#[derive(Clone)]
pub struct SharedContainer {
    manifest: Manifest,
    list: ContainerList,
    index: usize,
}

#[derive(Clone, Copy)]
enum ContainerList {
    Init,
    Regular,
    Ephemeral,
}

impl Manifest {
    /// The containers of [`Manifest::all_containers`], without borrowing the manifest.
    pub fn shared_containers(&self) -> impl Iterator<Item = (ContainerKind, SharedContainer)> {
        let lists = [
            (ContainerList::Init, self.init_containers()),
            (ContainerList::Regular, self.containers()),
            (ContainerList::Ephemeral, self.ephemeral_containers()),
        ];
        lists.into_iter().flat_map(move |(list, containers)| {
            let manifest = self.clone();
            containers
                .iter()
                .enumerate()
                .map(move |(index, container)| {
                    let kind = match list {
                        ContainerList::Init => kind_of_init(container),
                        ContainerList::Regular => ContainerKind::Regular,
                        ContainerList::Ephemeral => ContainerKind::Ephemeral,
                    };
                    let manifest = manifest.clone();
                    let shared = SharedContainer {
                        manifest,
                        list,
                        index,
                    };
                    (kind, shared)
                })
        })
    }
}

impl SharedContainer {
    /// Replaces the manifest by another one with the same containers.
    pub fn set_manifest(&mut self, manifest: Manifest) {
        self.manifest = manifest;
    }
}

impl Deref for SharedContainer {
    type Target = Container;

    fn deref(&self) -> &Container {
        // Manifests are immutable: the index stays valid.
        static NONE: LazyLock<Container> = LazyLock::new(Container::default);
        let containers = match self.list {
            ContainerList::Init => self.manifest.init_containers(),
            ContainerList::Regular => self.manifest.containers(),
            ContainerList::Ephemeral => self.manifest.ephemeral_containers(),
        };
        containers.get(self.index).unwrap_or(&NONE)
    }
}

impl PartialEq for SharedContainer {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for SharedContainer {
    // Only names, as the environment may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedContainer({} of {:?})", self.name, self.manifest)
    }
}
