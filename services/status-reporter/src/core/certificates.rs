//! When certificates are requested. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// The validity period of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Validity {
    /// The renewal time: after 70 to 90 % of the validity period, by a share between 0 and 1, so that
    /// nodes created together do not renew together.
    pub(crate) fn renewal(self, share: f64) -> Timestamp {
        let period = self.until.duration_since(self.from).as_secs() as f64;
        let after = SignedDuration::from_secs((period * (0.7 + 0.2 * share)).round() as i64);
        self.from.saturating_add(after).unwrap_or(self.until)
    }
}

/// The credentials in the kubeconfig.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// Missing or unreadable.
    None,
    /// A certificate and its location.
    Certificate(Validity, CertificateLocation),
    /// A token or an exec plugin, which are managed elsewhere.
    Other,
}

/// Where the client certificate is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateLocation {
    /// In the file that this service manages.
    Managed,
    /// In another file that the kubeconfig names.
    File,
    /// In the kubeconfig itself.
    Embedded,
}

/// The next step for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateAction {
    /// Request the first one with the bootstrap kubeconfig.
    Bootstrap,
    /// Request the next one as the node.
    Renew,
    /// Copy the embedded certificate to the managed file, and renew it at once.
    TakeOver,
    /// Check again at this time.
    Wait(Timestamp),
    /// Nothing, until the kubeconfig changes.
    Nothing,
}

/// The next step for the node's client certificate. With a bootstrap kubeconfig a missing or expired
/// one is requested; with `rotateCertificates` it is renewed in time, an embedded one at once: what
/// installers write to the kubeconfig may carry more privileges than a node should have.
pub(crate) fn client(
    credentials: Credentials,
    bootstrap: bool,
    rotate: bool,
    share: f64,
    now: Timestamp,
) -> CertificateAction {
    let first = if bootstrap {
        CertificateAction::Bootstrap
    } else {
        CertificateAction::Nothing
    };
    match credentials {
        Credentials::None => first,
        Credentials::Other => CertificateAction::Nothing,
        Credentials::Certificate(validity, _) if validity.until <= now => first,
        Credentials::Certificate(_, CertificateLocation::Embedded) if rotate => {
            CertificateAction::TakeOver
        }
        Credentials::Certificate(validity, _) if rotate => {
            let due = validity.renewal(share);
            if due <= now {
                CertificateAction::Renew
            } else {
                CertificateAction::Wait(due)
            }
        }
        Credentials::Certificate(validity, _) if bootstrap => {
            CertificateAction::Wait(validity.until)
        }
        Credentials::Certificate(..) => CertificateAction::Nothing,
    }
}

/// The next step for the serving certificate, which names all addresses of the node and is renewed in
/// time. Without an IP address no signer approves it.
pub(crate) fn serving(
    current: Option<(Validity, &BTreeSet<String>)>,
    required: &BTreeSet<String>,
    has_ip: bool,
    share: f64,
    now: Timestamp,
) -> CertificateAction {
    if !has_ip {
        return CertificateAction::Nothing;
    }
    match current {
        Some((validity, names)) if names.is_superset(required) => {
            let due = validity.renewal(share);
            if due <= now {
                CertificateAction::Renew
            } else {
                CertificateAction::Wait(due)
            }
        }
        _ => CertificateAction::Renew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + hour * 3600).unwrap()
    }

    fn validity() -> Validity {
        Validity {
            from: at(0),
            until: at(100),
        }
    }

    #[test]
    fn client_certificate_is_requested_and_renewed() {
        use Credentials::{Certificate, None, Other};
        let managed = Certificate(validity(), CertificateLocation::Managed);
        let file = Certificate(validity(), CertificateLocation::File);
        let embedded = Certificate(validity(), CertificateLocation::Embedded);
        let cases = [
            // Credentials, bootstrap, rotate, hour, next.
            (None, true, true, 0, CertificateAction::Bootstrap),
            (None, false, true, 0, CertificateAction::Nothing),
            (Other, true, true, 0, CertificateAction::Nothing),
            (managed, true, true, 79, CertificateAction::Wait(at(80))),
            (managed, true, true, 80, CertificateAction::Renew),
            (managed, false, true, 99, CertificateAction::Renew),
            (managed, true, true, 100, CertificateAction::Bootstrap),
            (managed, false, true, 100, CertificateAction::Nothing),
            (managed, true, false, 80, CertificateAction::Wait(at(100))),
            (managed, false, false, 80, CertificateAction::Nothing),
            (file, true, true, 79, CertificateAction::Wait(at(80))),
            (file, true, true, 99, CertificateAction::Renew),
            (file, false, true, 99, CertificateAction::Renew),
            (file, true, false, 99, CertificateAction::Wait(at(100))),
            (file, false, false, 99, CertificateAction::Nothing),
            (embedded, false, true, 0, CertificateAction::TakeOver),
            (embedded, false, false, 99, CertificateAction::Nothing),
            (embedded, true, true, 100, CertificateAction::Bootstrap),
            (file, true, false, 101, CertificateAction::Bootstrap),
        ];
        for (credentials, bootstrap, rotate, hour, next) in cases {
            let action = client(credentials, bootstrap, rotate, 0.5, at(hour));
            assert_eq!(action, next, "{credentials:?} {bootstrap} {rotate} {hour}");
        }
    }

    #[test]
    fn renewal_is_after_70_to_90_percent() {
        for (share, hour) in [(0.0, 70), (1.0, 90)] {
            let off = validity()
                .renewal(share)
                .duration_since(at(hour))
                .as_secs()
                .abs();
            assert!(off <= 1, "{share}: {off} s off");
        }
    }

    #[test]
    fn serving_certificate_names_every_address() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (few, more): (BTreeSet<String>, BTreeSet<String>) =
            (names(&["n1"]), names(&["n1", "192.0.2.7"]));
        let next =
            |current, required, has_ip, hour| serving(current, required, has_ip, 0.5, at(hour));
        assert_eq!(next(None, &few, false, 0), CertificateAction::Nothing);
        assert_eq!(next(None, &more, true, 0), CertificateAction::Renew);
        assert_eq!(
            next(Some((validity(), &few)), &more, true, 0),
            CertificateAction::Renew
        );
        assert_eq!(
            next(Some((validity(), &more)), &few, true, 0),
            CertificateAction::Wait(at(80))
        );
        assert_eq!(
            next(Some((validity(), &more)), &more, true, 81),
            CertificateAction::Renew
        );
    }
}
