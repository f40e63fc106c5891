use jiff::Timestamp;
use polylet_cri::log::StreamFilter;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::access::{
    AuthDecision, AuthorizationMode, RequestUser, UserInfo, attributes, decide, forbidden,
};
use super::log_query::{QueryError, parse};
use super::pods;

#[test]
fn paths_map_to_upstream_subresources() {
    let cases: &[(&str, &str, &str, &[&str])] = &[
        ("GET", "/pods", "get", &["pods", "proxy"]),
        ("GET", "/runningpods/", "get", &["pods", "proxy"]),
        ("GET", "/stats/summary", "get", &["stats"]),
        ("POST", "/stats/summary", "create", &["stats"]),
        ("GET", "/metrics/cadvisor", "get", &["metrics"]),
        ("GET", "/healthz", "get", &["healthz", "proxy"]),
        ("GET", "/containerLogs/a/b/c", "get", &["proxy"]),
        ("GET", "/podsy", "get", &["proxy"]),
        ("GET", "/configz", "get", &["configz", "proxy"]),
        ("GET", "/flagz", "get", &["configz"]),
        ("GET", "/statusz", "get", &["statusz"]),
        ("HEAD", "/pods", "", &["pods", "proxy"]),
        ("OPTIONS", "/logs/x", "", &["log"]),
    ];
    for (method, path, verb, subresources) in cases {
        let found = attributes(method, path);
        assert_eq!(found.verb, *verb, "{path}");
        assert_eq!(found.subresources, *subresources, "{path}");
    }
}

#[test]
fn requests_are_authenticated_and_authorized() {
    let user = |groups: &[&str]| UserInfo {
        name: "someone".to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    };
    let anonymous_user = UserInfo {
        name: "system:anonymous".to_owned(),
        groups: vec!["system:unauthenticated".to_owned()],
        ..UserInfo::default()
    };
    let caller = |groups: &[&str]| RequestUser::Authenticated(user(groups));
    use AuthorizationMode::{AlwaysAllow, Webhook};
    let cases = [
        (
            AlwaysAllow,
            false,
            RequestUser::Anonymous,
            AuthDecision::Unauthorized,
        ),
        (
            Webhook,
            false,
            RequestUser::Anonymous,
            AuthDecision::Unauthorized,
        ),
        (AlwaysAllow, false, caller(&["x"]), AuthDecision::Allow),
        (
            AlwaysAllow,
            true,
            RequestUser::Anonymous,
            AuthDecision::Allow,
        ),
        (
            Webhook,
            false,
            caller(&["system:masters"]),
            AuthDecision::Allow,
        ),
        (
            Webhook,
            true,
            RequestUser::Anonymous,
            AuthDecision::Review(anonymous_user.clone()),
        ),
        (
            Webhook,
            false,
            caller(&["x"]),
            AuthDecision::Review(user(&["x", "system:authenticated"])),
        ),
    ];
    for (mode, anonymous, caller, expected) in cases {
        let found = decide(mode, anonymous, &caller);
        assert_eq!(found, expected, "{mode:?} {caller:?}");
    }
    assert_eq!(
        forbidden(&anonymous_user, &attributes("GET", "/pods")),
        "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])\n"
    );
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

#[test]
fn flags_of_log_queries_are_true_unless_they_are_false() {
    for (value, expected) in [
        ("", true),
        ("true", true),
        ("1", true),
        ("yes", true),
        ("0", false),
        ("false", false),
        ("False", false),
    ] {
        let query = pairs(&[
            ("follow", value),
            ("previous", value),
            ("timestamps", value),
        ]);
        let read = parse(&query, false, Timestamp::UNIX_EPOCH).expect("a query");
        let flags = [read.options.follow, read.previous, read.options.timestamps];
        assert_eq!(flags, [expected; 3], "{value:?}");
    }
    let tail = |list: &[(&str, &str)]| {
        let read = parse(&pairs(list), false, Timestamp::UNIX_EPOCH);
        read.expect("a query").options.tail
    };
    assert_eq!(tail(&[("tailLines", "7"), ("tail", "3")]), Some(3));
    assert_eq!(tail(&[("tailLines", "7"), ("tail", "all")]), None);
    assert_eq!(tail(&[("tailLines", "7"), ("tail", "")]), Some(7));
    let none = parse(&pairs(&[("sinceTime", "")]), false, Timestamp::UNIX_EPOCH);
    assert_eq!(none.expect("a query").options.since, None);
}

#[test]
fn log_query_is_parsed() {
    let now = Timestamp::from_second(1000).expect("a time");
    let query = pairs(&[
        ("sinceSeconds", "10"),
        ("timestamps", "true"),
        ("limitBytes", "100"),
        ("follow", "true"),
        ("previous", "true"),
        ("stream", "Stderr"),
        ("other", "x"),
    ]);
    let read = parse(&query, true, now).expect("a query");
    assert!(read.previous && read.options.follow && read.options.timestamps);
    assert_eq!(read.options.tail, None);
    assert_eq!(read.options.limit_bytes, Some(100));
    assert_eq!(read.options.since.map(|at| at.as_second()), Some(990));
    assert_eq!(read.options.streams, StreamFilter::Stderr);
    assert_eq!(
        parse(&pairs(&[("tail", "3")]), false, now)
            .expect("a query")
            .options
            .tail,
        Some(3)
    );
    for (name, value, is_malformed) in [
        ("tailLines", "-1", false),
        ("tailLines", "x", true),
        ("tailLines", "", true),
        ("tail", "x", true),
        ("sinceSeconds", "0", false),
        ("sinceTime", "yesterday", true),
        ("limitBytes", "0", false),
        ("stream", "both", false),
    ] {
        let (malformed, message) = match parse(&pairs(&[(name, value)]), true, now).expect_err(name)
        {
            QueryError::Malformed(message) => (true, message),
            QueryError::Invalid(message) | QueryError::Disabled(message) => (false, message),
        };
        assert_eq!(malformed, is_malformed, "{message}");
        assert!(
            message.contains(name) && message.contains(value),
            "{message}"
        );
    }
    assert!(
        parse(
            &pairs(&[("sinceSeconds", "1"), ("sinceTime", "2020-01-01T00:00:00Z")]),
            true,
            now
        )
        .is_err()
    );
    // What cannot be decoded comes before what is not allowed.
    let both = pairs(&[("tailLines", "-1"), ("limitBytes", "x")]);
    assert!(matches!(
        parse(&both, true, now),
        Err(QueryError::Malformed(_))
    ));
    let one = pairs(&[("stream", "Stdout")]);
    let off = parse(&one, false, now).expect_err("the gate is off");
    assert!(matches!(off, QueryError::Disabled(_)), "{off:?}");
    assert!(parse(&pairs(&[("stream", "All"), ("tailLines", "1")]), false, now).is_ok());
    let both = pairs(&[("stream", "Stdout"), ("tailLines", "1")]);
    assert!(matches!(
        parse(&both, true, now),
        Err(QueryError::Invalid(_))
    ));
}

proptest! {
    #[test]
    fn parsing_never_panics(list in prop::collection::vec((".{0,12}", ".{0,12}"), 0..6), huge: u64) {
        let _ = parse(&list, true, Timestamp::UNIX_EPOCH);
        let _ = parse(&pairs(&[("sinceSeconds", &huge.to_string())]), false, Timestamp::UNIX_EPOCH);
    }
}

#[test]
fn status_is_inserted_into_the_pod() {
    let pod = pods::with_status(
        br#"{"kind":"Pod","metadata":{"name":"a"}}"#,
        br#"{"phase":"Running"}"#,
    );
    let pod = pod.unwrap();
    assert_eq!(
        pod,
        r#"{"metadata":{"name":"a"},"status":{"phase":"Running"}}"#
    );
    assert_eq!(pods::with_status(b"[]", b"{}"), None);
    let (begin, end) = pods::LIST;
    let list: Value = serde_json::from_str(&format!("{begin}{pod}{end}")).unwrap();
    let plain = pods::list(vec![serde_json::from_str(&pod).unwrap()]);
    assert_eq!(list, plain);
}

#[test]
fn containers_are_those_of_spec_and_status() {
    let manifest = br#"{"spec":{"containers":[{"name":"a"}],"initContainers":[{"name":"b"}],
        "ephemeralContainers":[{"name":"c"}]}}"#;
    let status = serde_json::from_value(json!({"containerStatuses": [
        {"name": "d", "image": "", "imageID": "", "ready": true, "restartCount": 0}]}));
    let status = status.unwrap();
    for (name, expected) in [
        ("a", true),
        ("b", true),
        ("c", true),
        ("d", true),
        ("e", false),
    ] {
        assert_eq!(
            pods::has_container(manifest, &status, name),
            expected,
            "{name}"
        );
    }
    assert!(pods::has_container(b"", &status, "d"));
    assert!(!pods::has_container(b"", &status, "a"));
}
