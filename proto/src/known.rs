//! Whether this build knows all that a message says. A newer peer may send an enum value or a variant of
//! a oneof that this build has no name for; prost keeps the one as a number and leaves the other out,
//! which reads like a default or like nothing at all. Neither must be taken for what the peer means.
//!
//! The [`Codec`] refuses such a message, except that the state of a stream is judged item by item by
//! its follower.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec as TonicCodec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// A message of our packages; implemented by generated code.
pub trait Known {
    /// Whether it is one of many responses of a method. Its reader decides what an unknown value in it
    /// means: other responses of the same stream are not affected.
    const STREAMED: bool = false;

    /// The first enum value or oneof that this build does not know, by the name of its field, such as
    /// `polylet.pleg.v1.Container.phase`; `None` if it knows all.
    fn unknown(&self) -> Option<&'static str>;
}

/// What each direction of a call has for its messages from the beginning, in bytes; it grows with them. Most calls are
/// streams that stay open and whose messages are small, and tonic's own 8 KiB stay allocated as long.
const BUFFER_SIZE: usize = 1 << 10;
/// Messages that are ready are sent together up to this size: tonic's own.
const YIELD_THRESHOLD: usize = 32 << 10;

/// What is wrong with a message in which this field is unknown.
pub fn message(field: &str) -> String {
    format!("{field} has a value that this build does not know: the peer is newer")
}

/// Protobuf, less messages that this build does not fully know.
#[derive(Debug, Clone)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Codec(PhantomData)
    }
}

fn buffer_settings() -> BufferSettings {
    BufferSettings::new(BUFFER_SIZE, YIELD_THRESHOLD)
}

impl<T, U> TonicCodec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Known + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = KnownDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(buffer_settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        KnownDecoder(ProstCodec::<T, U>::raw_decoder(buffer_settings()))
    }
}

/// The decoder of [`Codec`].
#[derive(Debug)]
pub struct KnownDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + Known> Decoder for KnownDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let decoded = self.0.decode(buffer)?;
        match decoded.as_ref().and_then(refused) {
            Some(field) => Err(Status::internal(message(field))),
            None => Ok(decoded),
        }
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.0.buffer_settings()
    }
}

/// The unknown field of a message that is refused because of it.
fn refused<M: Known>(message: &M) -> Option<&'static str> {
    (!M::STREAMED).then(|| message.unknown()).flatten()
}

/// The first unknown field of several messages.
fn messages<'a, M: Known + 'a>(messages: impl IntoIterator<Item = &'a M>) -> Option<&'static str> {
    messages.into_iter().find_map(Known::unknown)
}

/// `field` if one of these numbers is no value of the enum.
fn enums<'a, E: TryFrom<i32>>(
    numbers: impl IntoIterator<Item = &'a i32>,
    field: &'static str,
) -> Option<&'static str> {
    let mut numbers = numbers.into_iter();
    numbers
        .any(|number| E::try_from(*number).is_err())
        .then_some(field)
}

#[allow(clippy::all, unreachable_patterns)]
#[rustfmt::skip]
mod generated {
    use super::{Known, enums, messages};

    include!("gen/known.rs");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{eviction, pleg, podconfig, prober, supervisor, volume};

    /// A number that no enum has, as a newer build may send.
    const NEW: i32 = 77;

    #[test]
    fn values_are_checked_at_any_depth() {
        let container = |phase| pleg::v1::Container {
            phase,
            ..Default::default()
        };
        let pod = |phase| pleg::v1::PodState {
            containers: vec![container(2), container(phase)],
            ..Default::default()
        };
        assert_eq!(pod(3).unknown(), None);
        let phase = Some("polylet.pleg.v1.Container.phase");
        assert_eq!(pod(NEW).unknown(), phase);
        let upsert = pleg::v1::watch_pod_states_response::Change::Upsert(pod(NEW));
        let response = pleg::v1::WatchPodStatesResponse {
            change: Some(upsert),
        };
        assert_eq!(response.unknown(), phase);
        let refreshed = pleg::v1::RefreshPodResponse {
            state: Some(pod(NEW)),
            position: None,
        };
        assert_eq!(refreshed.unknown(), phase);
    }

    #[test]
    fn an_unset_oneof_is_unknown_and_an_unset_enum_is_not() {
        let response = podconfig::v1::WatchObjectResponse::default();
        let state = "polylet.podconfig.v1.WatchObjectResponse.state";
        assert_eq!(response.unknown(), Some(state));
        let key = eviction::v1::pressure_key::Key::Resource(NEW);
        let key = eviction::v1::PressureKey { key: Some(key) };
        let resource = "polylet.eviction.v1.PressureKey.resource";
        assert_eq!(key.unknown(), Some(resource));
        assert_eq!(podconfig::v1::Pod::default().unknown(), None);
        // `optional` is no oneof.
        assert_eq!(volume::v1::Volume::default().unknown(), None);
    }

    #[test]
    fn streams_are_left_to_their_followers() {
        let status = prober::v1::WatchProbeStatusesResponse::default();
        assert!(status.unknown().is_some() && refused(&status).is_none());
        let request = podconfig::v1::WatchPodsRequest {
            source: NEW,
            ..Default::default()
        };
        let source = "polylet.podconfig.v1.WatchPodsRequest.source";
        assert_eq!(refused(&request), Some(source));
        const { assert!(supervisor::v1::UpgradeResponse::STREAMED) };
        const { assert!(!pleg::v1::RefreshPodResponse::STREAMED) };
    }
}
