//! When certificates are asked for. Pure.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Validity {
    /// Within 70 to 90 % of its life, by a share between 0 and 1, so that nodes that were made
    /// together do not ask together.
    pub(crate) fn renewal(self, share: f64) -> Timestamp {
        let life = self.until.duration_since(self.from).as_secs() as f64;
        let after = SignedDuration::from_secs((life * (0.7 + 0.2 * share)).round() as i64);
        self.from.saturating_add(after).unwrap_or(self.until)
    }
}

/// How the kubeconfig says who the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credentials {
    /// There is none that can be read.
    None,
    /// By a certificate, and where that is.
    Certificate(Validity, Place),
    /// By a token or a program, which somebody else looks after.
    Other,
}

/// Where a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The file that this service keeps.
    Kept,
    /// A file that the kubeconfig names.
    File,
    /// In the kubeconfig itself.
    Embedded,
}

/// What to do about a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Ask for the first one, as one who may do nothing else.
    Bootstrap,
    /// Ask for the next one, as the node.
    Renew,
    /// Keep the kubeconfig's own, and ask for the next one at once.
    TakeOver,
    /// Look again then.
    Wait(Timestamp),
    /// Nothing, until the kubeconfig changes.
    Nothing,
}

/// What to do about the node's client certificate. With a bootstrap kubeconfig a missing or ended one
/// is asked for; with `rotateCertificates` it is renewed in time, one that is in the kubeconfig itself
/// at once: what installers write there may be good for more than a node should be.
pub(crate) fn client(
    credentials: Credentials,
    bootstrap: bool,
    rotate: bool,
    share: f64,
    now: Timestamp,
) -> Next {
    let first = if bootstrap {
        Next::Bootstrap
    } else {
        Next::Nothing
    };
    match credentials {
        Credentials::None => first,
        Credentials::Other => Next::Nothing,
        Credentials::Certificate(validity, _) if validity.until <= now => first,
        Credentials::Certificate(_, Place::Embedded) if rotate => Next::TakeOver,
        Credentials::Certificate(validity, _) if rotate => {
            let due = validity.renewal(share);
            if due <= now {
                Next::Renew
            } else {
                Next::Wait(due)
            }
        }
        Credentials::Certificate(validity, _) if bootstrap => Next::Wait(validity.until),
        Credentials::Certificate(..) => Next::Nothing,
    }
}

/// What to do about the serving certificate: it names all of the node's addresses and is renewed in
/// time. Without an address none can be had.
pub(crate) fn serving(
    held: Option<(Validity, &BTreeSet<String>)>,
    wanted: &BTreeSet<String>,
    has_ip: bool,
    share: f64,
    now: Timestamp,
) -> Next {
    if !has_ip {
        return Next::Nothing;
    }
    match held {
        Some((validity, names)) if names.is_superset(wanted) => {
            let due = validity.renewal(share);
            if due <= now {
                Next::Renew
            } else {
                Next::Wait(due)
            }
        }
        _ => Next::Renew,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + hour * 3600).unwrap()
    }

    fn life() -> Validity {
        Validity {
            from: at(0),
            until: at(100),
        }
    }

    #[test]
    fn the_first_certificate_and_the_next() {
        use Credentials::{Certificate, None, Other};
        let ours = Certificate(life(), Place::Kept);
        let theirs = Certificate(life(), Place::File);
        let within = Certificate(life(), Place::Embedded);
        let cases = [
            // Credentials, bootstrap, rotate, hour, next.
            (None, true, true, 0, Next::Bootstrap),
            (None, false, true, 0, Next::Nothing),
            (Other, true, true, 0, Next::Nothing),
            (ours, true, true, 79, Next::Wait(at(80))),
            (ours, true, true, 80, Next::Renew),
            (ours, false, true, 99, Next::Renew),
            (ours, true, true, 100, Next::Bootstrap),
            (ours, false, true, 100, Next::Nothing),
            (ours, true, false, 80, Next::Wait(at(100))),
            (ours, false, false, 80, Next::Nothing),
            (theirs, true, true, 79, Next::Wait(at(80))),
            (theirs, true, true, 99, Next::Renew),
            (theirs, false, true, 99, Next::Renew),
            (theirs, true, false, 99, Next::Wait(at(100))),
            (theirs, false, false, 99, Next::Nothing),
            (within, false, true, 0, Next::TakeOver),
            (within, false, false, 99, Next::Nothing),
            (within, true, true, 100, Next::Bootstrap),
            (theirs, true, false, 101, Next::Bootstrap),
        ];
        for (credentials, bootstrap, rotate, hour, next) in cases {
            let told = client(credentials, bootstrap, rotate, 0.5, at(hour));
            assert_eq!(told, next, "{credentials:?} {bootstrap} {rotate} {hour}");
        }
    }

    #[test]
    fn renewed_within_seven_to_nine_tenths_of_its_life() {
        for (share, hour) in [(0.0, 70), (1.0, 90)] {
            let off = life()
                .renewal(share)
                .duration_since(at(hour))
                .as_secs()
                .abs();
            assert!(off <= 1, "{share}: {off} s off");
        }
    }

    #[test]
    fn a_serving_certificate_names_every_address() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (few, more): (BTreeSet<String>, BTreeSet<String>) =
            (names(&["n1"]), names(&["n1", "192.0.2.7"]));
        let next = |held, wanted, has_ip, hour| serving(held, wanted, has_ip, 0.5, at(hour));
        assert_eq!(next(None, &few, false, 0), Next::Nothing);
        assert_eq!(next(None, &more, true, 0), Next::Renew);
        assert_eq!(next(Some((life(), &few)), &more, true, 0), Next::Renew);
        assert_eq!(
            next(Some((life(), &more)), &few, true, 0),
            Next::Wait(at(80))
        );
        assert_eq!(next(Some((life(), &more)), &more, true, 81), Next::Renew);
    }
}
