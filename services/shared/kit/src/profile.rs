//! Profiles of this process on demand, for `polylet profile` and the node API. At rest they cost nothing
//! (`polylet_profile`).

use std::pin::Pin;
use std::time::Duration;

use futures::stream::{self, Stream, StreamExt};
use polylet_profile::{CpuSampling, HeapSampling, ProfileError, ProfileSamples};
pub use polylet_profile::{function_names, stop_timer};
use polylet_wire::lifecycle::v1::profile_service_client::ProfileServiceClient;
use polylet_wire::lifecycle::v1::profile_service_server::{ProfileService, ProfileServiceServer};
use polylet_wire::lifecycle::v1::{ProfileKind, ProfileRequest, ProfileResponse};
use tonic::codegen::{Body, Bytes, StdError};
use tonic::{Request, Response, Status};

/// How long a profile lasts unless somebody says otherwise, as of Go's profiler.
pub const DEFAULT_DURATION: Duration = Duration::from_secs(30);
/// How long a profile lasts at most.
pub const MAX_DURATION: Duration = Duration::from_secs(300);
/// Bytes of a profile that are accepted from another process. A full buffer of samples has a few megabytes.
const MAX_SIZE: usize = 64 * 1024 * 1024;
/// Bytes of a message.
const CHUNK: usize = 256 * 1024;
/// Time for the names of the functions, after the samples were taken.
const ENCODE_TIMEOUT: Duration = Duration::from_secs(60);

/// Samples that are being taken.
enum ProfileSampling {
    Cpu(CpuSampling),
    Heap(HeapSampling),
}

impl ProfileSampling {
    fn start(kind: ProfileKind) -> Result<Self, Status> {
        let started = match kind {
            ProfileKind::Cpu => CpuSampling::start().map(Self::Cpu),
            ProfileKind::Heap => HeapSampling::start().map(Self::Heap),
            ProfileKind::Unspecified => {
                return Err(Status::invalid_argument(
                    "the kind of the profile is missing",
                ));
            }
        };
        started.map_err(|error| {
            let message = crate::report(&error);
            match error {
                ProfileError::Busy => Status::resource_exhausted(message),
                ProfileError::NotSampled => Status::unimplemented(message),
                ProfileError::Timer(_) => Status::internal(message),
            }
        })
    }

    fn finish(self) -> ProfileSamples {
        match self {
            Self::Cpu(sampling) => sampling.finish(),
            Self::Heap(sampling) => sampling.finish(),
        }
    }

    /// The profile of the samples of a duration. Dropping it ends the sampling.
    async fn complete(self, duration: Duration) -> Result<Vec<u8>, Status> {
        tokio::time::sleep(duration).await;
        let encode = move || self.finish().encode();
        let encoded = tokio::task::spawn_blocking(encode).await;
        // What the names took is free again, and no work follows that would return it.
        crate::memory::trim();
        let failed = |error: String| Status::internal(format!("encoding the profile: {error}"));
        encoded
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))
    }
}

/// Takes a profile of this process: a gzip'd message of pprof's format.
///
/// # Errors
/// As of the method of the same purpose of `ProfileService`.
pub async fn take(kind: ProfileKind, duration: Duration) -> Result<Vec<u8>, Status> {
    let duration = checked(duration)?;
    ProfileSampling::start(kind)?.complete(duration).await
}

/// Takes a profile of another process through a channel to it.
///
/// # Errors
/// Those of `ProfileService`, or if the profile is larger than 64 MiB.
pub async fn take_from<C>(
    channel: C,
    kind: ProfileKind,
    duration: Duration,
) -> Result<Vec<u8>, Status>
where
    C: tonic::client::GrpcService<tonic::body::Body>,
    C::Error: Into<StdError>,
    C::ResponseBody: Body<Data = Bytes> + Send + 'static,
    <C::ResponseBody as Body>::Error: Into<StdError> + Send,
{
    let duration = checked(duration)?;
    let wire = prost_types::Duration::try_from(duration)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let mut request = Request::new(ProfileRequest {
        kind: kind.into(),
        duration: Some(wire),
    });
    let timeout = duration.saturating_add(ENCODE_TIMEOUT);
    request.set_timeout(timeout);
    let read = async {
        let mut client = ProfileServiceClient::new(channel);
        let mut stream = client.profile(request).await?.into_inner();
        let mut profile = Vec::new();
        while let Some(message) = stream.message().await? {
            if profile.len().saturating_add(message.data.len()) > MAX_SIZE {
                return Err(Status::out_of_range("the profile is larger than 64 MiB"));
            }
            profile.extend_from_slice(&message.data);
        }
        Ok(profile)
    };
    // The timeout of a request ends with the first message of a stream.
    tokio::time::timeout(timeout, read)
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("the profile takes too long")))
}

fn checked(duration: Duration) -> Result<Duration, Status> {
    if duration.is_zero() || duration > MAX_DURATION {
        let limit = MAX_DURATION.as_secs();
        let message = format!("the duration is not between 0 and {limit} seconds");
        return Err(Status::invalid_argument(message));
    }
    Ok(duration)
}

/// The server of `ProfileService`, for the routes of a process.
pub fn server() -> ProfileServiceServer<ProfileEndpoint> {
    ProfileServiceServer::new(ProfileEndpoint)
}

/// The methods of `ProfileService`.
#[derive(Debug)]
pub struct ProfileEndpoint;

#[tonic::async_trait]
impl ProfileService for ProfileEndpoint {
    type ProfileStream = Pin<Box<dyn Stream<Item = Result<ProfileResponse, Status>> + Send>>;

    async fn profile(
        &self,
        request: Request<ProfileRequest>,
    ) -> Result<Response<Self::ProfileStream>, Status> {
        let request = request.into_inner();
        let duration = request.duration.unwrap_or_default();
        let duration = Duration::try_from(duration)
            .map_err(|_| Status::invalid_argument("the duration is negative"))?;
        let duration = checked(duration)?;
        let sampling = ProfileSampling::start(request.kind())?;
        let chunks = async move {
            let chunks = match sampling.complete(duration).await {
                Ok(profile) => chunks(profile).map(Ok).collect(),
                Err(status) => vec![Err(status)],
            };
            stream::iter(chunks)
        };
        Ok(Response::new(Box::pin(stream::once(chunks).flatten())))
    }
}

fn chunks(profile: Vec<u8>) -> impl Iterator<Item = ProfileResponse> {
    let mut rest = Bytes::from(profile);
    std::iter::from_fn(move || {
        let data = rest.split_to(rest.len().min(CHUNK));
        (!data.is_empty()).then_some(ProfileResponse { data })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_sent_in_pieces() {
        let profile: Vec<u8> = (0..=255).cycle().take(2 * CHUNK + 1).collect();
        let pieces: Vec<_> = chunks(profile.clone()).map(|piece| piece.data).collect();
        let sizes: Vec<_> = pieces.iter().map(|data| data.len()).collect();
        assert_eq!(sizes, [CHUNK, CHUNK, 1]);
        assert_eq!(pieces.concat(), profile);
        assert_eq!(chunks(Vec::new()).count(), 0);
    }

    #[tokio::test]
    async fn requests_that_make_no_sense_are_refused() {
        for (kind, milliseconds) in [
            (ProfileKind::Unspecified, 1),
            (ProfileKind::Cpu, 0),
            (ProfileKind::Cpu, 300_001),
        ] {
            let refused = take(kind, Duration::from_millis(milliseconds)).await;
            let code = refused.unwrap_err().code();
            assert_eq!(
                code,
                tonic::Code::InvalidArgument,
                "{kind:?} {milliseconds}"
            );
        }
        // This program has another allocator.
        let refused = take(ProfileKind::Heap, Duration::from_millis(1)).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);
    }

    #[tokio::test]
    async fn one_profile_is_taken_at_a_time_and_a_dropped_one_ends() {
        let duration = Duration::from_secs(60);
        let mut first = Box::pin(take(ProfileKind::Cpu, duration));
        assert!(futures::poll!(&mut first).is_pending());
        let refused = take(ProfileKind::Cpu, duration).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        drop(first);
        let second = take(ProfileKind::Cpu, Duration::from_millis(1)).await;
        assert_eq!(second.unwrap().get(..2), Some(&[0x1f, 0x8b][..]));
    }
}
