//! How a store keeps its items.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use polylet_wire::{
    device, eviction, imagegc, notice, pleg, podconfig, prober, status, sync, volume,
};
use prost::Message;

/// An item of a store.
pub trait StoreItem: Clone + PartialEq + Send + Sync + 'static {
    /// What the store has of it. Clones share it.
    type Kept: Clone + PartialEq + Send + Sync + 'static;
    /// Before it is stored.
    fn keep(self) -> Self::Kept;
    /// The item as it was.
    fn restore(kept: Self::Kept) -> Self;
}

/// An encoded message, which takes a third of the memory of the decoded one, and one allocation.
pub struct Encoded<M> {
    bytes: Arc<[u8]>,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Encoded<M> {
    fn new(message: &M) -> Self {
        Encoded {
            bytes: message.encode_to_vec().into(),
            message: PhantomData,
        }
    }

    fn decode(&self) -> M {
        // It was encoded here, so this cannot fail.
        M::decode(&*self.bytes).unwrap_or_default()
    }
}

impl<M> Clone for Encoded<M> {
    fn clone(&self) -> Self {
        Encoded {
            bytes: Arc::clone(&self.bytes),
            message: PhantomData,
        }
    }
}

// Maps on our wire are sorted: equal messages have equal bytes.
impl<M> PartialEq for Encoded<M> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl<M> fmt::Debug for Encoded<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} encoded bytes", self.bytes.len())
    }
}

macro_rules! kept_encoded {
    ($($item:ty),*) => {
        $(impl StoreItem for $item {
            type Kept = Encoded<$item>;

            fn keep(self) -> Self::Kept {
                Encoded::new(&self)
            }

            fn restore(kept: Self::Kept) -> Self {
                kept.decode()
            }
        })*
    };
}

macro_rules! kept_as_it_is {
    ($($item:ty),*) => {
        $(impl StoreItem for $item {
            type Kept = Arc<$item>;

            fn keep(self) -> Arc<$item> {
                Arc::new(self)
            }

            fn restore(kept: Arc<$item>) -> $item {
                Arc::unwrap_or_clone(kept)
            }
        })*
    };
}

kept_encoded!(
    notice::v1::Notice,
    pleg::v1::PodState,
    sync::v1::PodSync,
    volume::v1::PodVolumes,
    prober::v1::ProbeStatus
);

// Mostly bytes that others share, or few.
kept_as_it_is!(
    podconfig::v1::Pod,
    podconfig::v1::MirrorPod,
    podconfig::v1::Service,
    status::v1::PodStatus,
    device::v1::DeviceResource,
    device::v1::PodDevices,
    imagegc::v1::Image,
    eviction::v1::Pressure
);

#[cfg(test)]
mod tests {
    use polylet_wire::common::v1::PodRef;
    use polylet_wire::pleg::v1::{Container, PodState};

    use super::*;

    #[test]
    fn an_encoded_item_is_restored() {
        let state = |name: &str| PodState {
            r#ref: Some(PodRef {
                uid: "u".into(),
                ..PodRef::default()
            }),
            containers: vec![Container {
                name: name.into(),
                annotations: [("b".into(), "1".into()), ("a".into(), "2".into())].into(),
                ..Container::default()
            }],
            ..PodState::default()
        };
        let kept = state("a").keep();
        assert_eq!(PodState::restore(kept.clone()), state("a"));
        assert!(kept == state("a").keep() && kept != state("b").keep());
    }
}
