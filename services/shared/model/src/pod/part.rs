//! A container of a manifest that is held by itself.

use std::fmt;
use std::ops::Deref;
use std::sync::LazyLock;

use k8s_openapi::api::core::v1::Container;

use super::{ContainerKind, Manifest, kind_of_init};

/// One container, which stays in its manifest: no copy of it, as its environment may be a megabyte.
#[derive(Clone)]
pub struct Part {
    of: Manifest,
    list: List,
    at: usize,
}

#[derive(Clone, Copy)]
enum List {
    Init,
    Regular,
    Ephemeral,
}

impl Manifest {
    /// The same containers as [`Manifest::all_containers`], to be held.
    pub fn parts(&self) -> impl Iterator<Item = (ContainerKind, Part)> {
        let lists = [
            (List::Init, self.init_containers()),
            (List::Regular, self.containers()),
            (List::Ephemeral, self.ephemeral_containers()),
        ];
        lists.into_iter().flat_map(move |(list, containers)| {
            let of = self.clone();
            containers.iter().enumerate().map(move |(at, container)| {
                let kind = match list {
                    List::Init => kind_of_init(container),
                    List::Regular => ContainerKind::Regular,
                    List::Ephemeral => ContainerKind::Ephemeral,
                };
                let of = of.clone();
                (kind, Part { of, list, at })
            })
        })
    }
}

impl Deref for Part {
    type Target = Container;

    fn deref(&self) -> &Container {
        // A manifest never changes: there is one at the place.
        static NONE: LazyLock<Container> = LazyLock::new(Container::default);
        let containers = match self.list {
            List::Init => self.of.init_containers(),
            List::Regular => self.of.containers(),
            List::Ephemeral => self.of.ephemeral_containers(),
        };
        containers.get(self.at).unwrap_or(&NONE)
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for Part {
    // An environment can hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({} of {:?})", self.name, self.of)
    }
}
