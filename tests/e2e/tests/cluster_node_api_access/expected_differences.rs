//! ResponsesByRequest that differ from the kubelet's, with the reasons.

use polylet_e2e::kubelet_parity::patterns::matches;

use crate::ResponsesByRequest;

/// Patterns (`*` matches any text) of `caller method path`, of the kubelet's and of Polylet's response, and the
/// reason.
type ExpectedResponse = (&'static str, &'static str, &'static str, &'static str);

const BEFORE_ACCESS: &str =
    "the kubelet looks for the path before it asks who calls, Polylet after";
const BAD_CERTIFICATE: &str = "a certificate that is not valid ends the TLS handshake";

const EXPECTED: [ExpectedResponse; 9] = [
    ("*", "404 *nosniff*", "401 *", BEFORE_ACCESS),
    ("*", "404 *nosniff*", "403 *", BEFORE_ACCESS),
    ("*", "307 *", "401 *", BEFORE_ACCESS),
    ("*", "307 *", "403 *", BEFORE_ACCESS),
    (
        "expired *",
        "*",
        "closed: *CertificateExpired",
        BAD_CERTIFICATE,
    ),
    ("foreign *", "*", "closed: *UnknownCA", BAD_CERTIFICATE),
    (
        "* /metrics*",
        "200 *; escaping=underscores\"",
        "200 *",
        "no name in Polylet's metrics has to be escaped",
    ),
    (
        "* GET /containerLogs/NS/web/main",
        "200",
        "200 content-type=\"text/plain\"",
        "the kubelet's server guesses the type of a log from its first bytes; this one has none",
    ),
    (
        "* /debug/pprof/*",
        "*",
        "*",
        "the kubelet's profiles are those of the Go runtime",
    ),
];

/// All other differences.
pub(crate) fn unexpected(
    kubelet: &ResponsesByRequest,
    polylet: &ResponsesByRequest,
) -> Vec<String> {
    let mut found = Vec::new();
    for (request, theirs) in kubelet {
        let ours = polylet.get(request).map_or("no request", String::as_str);
        let is_expected = EXPECTED.iter().any(|(of, their, own, _)| {
            matches(request, of) && matches(theirs, their) && matches(ours, own)
        });
        if theirs != ours && !is_expected {
            found.push(format!("{request}\n  kubelet: {theirs}\n  polylet: {ours}"));
        }
    }
    found
}

#[test]
fn differences_are_expected_by_request_and_both_responses() {
    let responses = |request: &str, text: &str| {
        ResponsesByRequest::from([(request.to_owned(), text.to_owned())])
    };
    let request = "nobody GET /none";
    let theirs = responses(request, "404 x=\"nosniff\" \"404 page not found\"");
    for (ours, count) in [("403 Forbidden", 0), ("200 ", 1), ("404 x", 1)] {
        let found = unexpected(&theirs, &responses(request, ours));
        assert_eq!(found.len(), count, "{ours}");
    }
    assert!(unexpected(&theirs, &theirs).is_empty());
}
