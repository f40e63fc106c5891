//! Headers of requests, from the manifests of pods: bounded, since `HeaderMap` panics beyond some
//! 24,000 names where it does not return an error.

use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::{HttpError, MAX_HEADER_BYTES, MAX_HEADERS};

/// The caller's headers and the default ones. Of a header that can occur only once, the first
/// counts; an empty one suppresses the default.
pub(crate) fn request_headers(
    given: &[(String, String)],
    user_agent: &'static str,
) -> Result<HeaderMap, HttpError> {
    let bytes = given.iter().map(|(name, value)| name.len() + value.len());
    if given.len() > MAX_HEADERS || bytes.sum::<usize>() > MAX_HEADER_BYTES {
        return Err(HttpError::TooManyHeaders);
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        let invalid = || HttpError::Header(name.clone());
        let key = HeaderName::try_from(name.as_str()).map_err(|_| invalid())?;
        let value = HeaderValue::try_from(value.as_str()).map_err(|_| invalid())?;
        if [HOST, USER_AGENT].contains(&key) && headers.contains_key(&key) {
            continue;
        }
        let appended = headers.try_append(key, value);
        appended.map_err(|_| HttpError::TooManyHeaders)?;
    }
    for (key, default) in [(USER_AGENT, user_agent), (ACCEPT, "*/*"), (HOST, "")] {
        match headers.get(&key) {
            None if !default.is_empty() => {
                insert(&mut headers, key, HeaderValue::from_static(default))?;
            }
            Some(value) if value.is_empty() => drop(headers.remove(key)),
            _ => {}
        }
    }
    Ok(headers)
}

/// Sets a header.
pub(crate) fn insert(
    headers: &mut HeaderMap,
    name: HeaderName,
    value: HeaderValue,
) -> Result<(), HttpError> {
    let inserted = headers.try_insert(name, value);
    inserted.map(drop).map_err(|_| HttpError::TooManyHeaders)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers_of(headers: Vec<(String, String)>) -> Result<HeaderMap, HttpError> {
        request_headers(&headers, "test")
    }

    #[test]
    fn too_many_headers_are_an_error() {
        let many = |count: usize, value: &str| {
            let names = (0..count).map(|n| (format!("X-{n}"), value.to_owned()));
            headers_of(names.collect())
        };
        assert!(many(MAX_HEADERS, "").is_ok());
        for count in [MAX_HEADERS + 1, 24_577, 30_000, 100_000] {
            let error = many(count, "").unwrap_err();
            assert!(matches!(error, HttpError::TooManyHeaders), "{error}");
        }
        let large = "x".repeat(MAX_HEADER_BYTES / 100);
        assert!(many(99, &large).is_ok());
        assert!(matches!(many(101, &large), Err(HttpError::TooManyHeaders)));
        // Of one name.
        let same = vec![("X".to_owned(), String::new()); 30_000];
        assert!(matches!(headers_of(same), Err(HttpError::TooManyHeaders)));
    }

    #[test]
    fn an_empty_header_suppresses_the_default() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers = headers_of(vec![pair("accept", ""), pair("a", "1"), pair("A", "2")]).unwrap();
        let named = |name| headers.get_all(name).iter().count();
        assert_eq!(
            (named("accept"), named("user-agent"), named("a")),
            (0, 1, 2)
        );
    }
}
