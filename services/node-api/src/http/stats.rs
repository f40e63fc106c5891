//! `/stats/summary`.

use axum::extract::{Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use super::{HandlerState, PeerError};

/// Usage of the node and its pods.
pub(crate) async fn summary(
    State(state): State<HandlerState>,
    Query(query): Query<Vec<(String, String)>>,
) -> Result<impl IntoResponse, PeerError> {
    let only_cpu_and_memory = is_only_cpu_and_memory(&query);
    let summary = state.peers.stats.summary(only_cpu_and_memory).await?;
    Ok(([(CONTENT_TYPE, "application/json")], summary))
}

/// As upstream, only `true` is true, and only once.
fn is_only_cpu_and_memory(query: &[(String, String)]) -> bool {
    let mut values = query
        .iter()
        .filter(|(name, _)| name == "only_cpu_and_memory");
    let first = values.next();
    first.is_some_and(|(_, value)| value == "true") && values.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_parameters_are_ignored() {
        let is_only = |values: &[&str]| {
            let pair = |value: &&str| ("only_cpu_and_memory".to_owned(), (*value).to_owned());
            is_only_cpu_and_memory(&values.iter().map(pair).collect::<Vec<_>>())
        };
        assert!(is_only(&["true"]));
        for values in [&[][..], &["1"], &["True"], &[""], &["true", "true"]] {
            assert!(!is_only(values), "{values:?}");
        }
    }
}
