//! Responses that differ from the kubelet's, with the reasons.

use polylet_e2e::kubelet_parity::patterns::matches;

use crate::Responses;

/// Patterns of `caller method path: response` (`*` matches any text) of either, and the reason.
const EXPECTED: [(&str, &str); 0] = [];

/// All other differences.
pub(crate) fn unexpected(kubelet: &Responses, polylet: &Responses) -> Vec<String> {
    let mut found = Vec::new();
    for (request, theirs) in kubelet {
        let ours = polylet.get(request).map_or("no request", String::as_str);
        if theirs == ours {
            continue;
        }
        let is_expected = |line: &str| EXPECTED.iter().any(|(pattern, _)| matches(line, pattern));
        let lines = [theirs.as_str(), ours].map(|text| format!("{request}: {text}"));
        if !lines.iter().any(|line| is_expected(line)) {
            found.push(format!("{request}\n  kubelet: {theirs}\n  polylet: {ours}"));
        }
    }
    found
}
