//! Upstream's words about images and their pulls.

use std::time::Duration;

use polylet_model::constants::reason;

use super::super::said;
use crate::core::learn::Trouble;

/// A pull that failed, as upstream words it.
pub(super) fn failed(reference: &str, words: &str) -> Trouble {
    for (reason, why) in [
        (reason::REGISTRY_UNAVAILABLE, "the registry is unavailable"),
        (
            reason::SIGNATURE_VALIDATION_FAILED,
            "the signature validation failed",
        ),
    ] {
        if let Some(rest) = words.strip_prefix(reason) {
            let message = format!("image pull failed for {reference} because {why}{rest}");
            return said(reason, message);
        }
    }
    said(reason::ERR_IMAGE_PULL, words)
}

/// Cut to milliseconds, as upstream prints it: 530ms, 1.2s, 1m2.5s.
pub(super) fn go_duration(span: Duration) -> String {
    let millis = span.as_millis();
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut seconds = format!("{}.{:03}", rest / 1000, rest % 1000);
    seconds.truncate(seconds.trim_end_matches('0').trim_end_matches('.').len());
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// A name that is none: no use to try again.
pub(super) fn invalid(message: String) -> Trouble {
    Trouble {
        lasting: true,
        ..said(reason::INVALID_IMAGE_NAME, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_printed_as_upstream_does() {
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
    fn failures_keep_upstreams_words() {
        for (words, reason, message) in [
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
            let trouble = failed("a:1", words);
            assert_eq!(
                (trouble.reason.as_str(), trouble.message.as_str()),
                (reason, message)
            );
        }
    }
}
