//! The kubelet's reasons and messages about images and their pulls.

use std::time::Duration;

use polylet_model::constants::reason;

use super::super::failure;
use crate::core::step::StepFailure;

/// The failure of a pull with this error.
pub(super) fn pull_failure(reference: &str, error: &str) -> StepFailure {
    for (reason, cause) in [
        (reason::REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (
            reason::SIGNATURE_VALIDATION_FAILED,
            "the signature validation failed",
        ),
    ] {
        if let Some(rest) = error.strip_prefix(reason) {
            let message = format!("image pull failed for {reference} because {cause}{rest}");
            return failure(reason, message);
        }
    }
    failure(reason::ERR_IMAGE_PULL, error)
}

/// A duration in whole milliseconds, as Go prints it: 530ms, 1.2s, 1m2.5s.
pub(super) fn go_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    polylet_schedule::go_duration::format(Duration::from_millis(millis))
}

/// The failure of an invalid image name, which a retry does not fix.
pub(super) fn invalid_image(message: String) -> StepFailure {
    StepFailure {
        permanent: true,
        ..failure(reason::INVALID_IMAGE_NAME, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_in_go() {
        for (millis, printed) in [
            (0, "0s"),
            (530, "530ms"),
            (1000, "1s"),
            (1204, "1.204s"),
            (60_000, "1m0s"),
            (62_500, "1m2.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_duration(Duration::from_millis(millis)), printed);
        }
    }

    #[test]
    fn pull_failures_have_the_messages_of_the_kubelet() {
        for (error, reason, message) in [
            ("no such host", "ErrImagePull", "no such host"),
            (
                "RegistryUnavailable: connection refused",
                "RegistryUnavailable",
                "image pull failed for a:1 because the registry is unavailable: connection refused",
            ),
            (
                "SignatureValidationFailed",
                "SignatureValidationFailed",
                "image pull failed for a:1 because the signature validation failed",
            ),
            (
                "it said RegistryUnavailable",
                "ErrImagePull",
                "it said RegistryUnavailable",
            ),
        ] {
            let failure = pull_failure("a:1", error);
            assert_eq!(
                (failure.reason.as_str(), failure.message.as_str()),
                (reason, message)
            );
        }
    }
}
