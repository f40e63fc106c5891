//! Every endpoint, each method and each kind of caller: who may do what.

use super::{AuthDecision, AuthorizationMode, RequestUser, UserInfo, attributes, decide};

/// Verb and subresource that a role grants; a star is every verb.
type Grant = (&'static str, &'static str);

/// Users by the letter of their column, with what the API server grants them.
const USERS: &[(char, &[Grant])] = &[
    ('P', &[("*", "proxy")]),
    ('M', &[("get", "metrics"), ("get", "stats")]),
    (
        'F',
        &[("get", "pods"), ("get", "healthz"), ("get", "configz")],
    ),
    ('L', &[("get", "log")]),
    ('C', &[("create", "checkpoint")]),
    ('S', &[("get", "statusz")]),
    ('-', &[]),
];

const METHODS: &[(&str, &str)] = &[
    ("GET", "get"),
    ("POST", "create"),
    ("PUT", "update"),
    ("PATCH", "patch"),
    ("DELETE", "delete"),
    // Methods without a verb: only who may use every verb is allowed them.
    ("HEAD", ""),
    ("OPTIONS", ""),
];

/// Paths, who may GET them, who may POST to them, and who may use the other methods.
const ENDPOINTS: &[(&[&str], &str, &str, &str)] = &[
    (
        &["/pods", "/pods/", "/runningpods", "/runningpods/"],
        "PF",
        "P",
        "P",
    ),
    (
        &[
            "/healthz",
            "/healthz/ping",
            "/healthz/log",
            "/healthz/syncloop",
        ],
        "PF",
        "P",
        "P",
    ),
    (&["/configz"], "PF", "P", "P"),
    (&["/stats", "/stats/", "/stats/summary"], "M", "", ""),
    (
        &[
            "/metrics",
            "/metrics/cadvisor",
            "/metrics/probes",
            "/metrics/resource",
            "/metrics/slis",
        ],
        "M",
        "",
        "",
    ),
    (
        &["/logs", "/logs/", "/logs/syslog", "/logs/../pods"],
        "L",
        "",
        "",
    ),
    (
        &[
            "/checkpoint",
            "/checkpoint/",
            "/checkpoint/ns/pod/container",
        ],
        "",
        "C",
        "",
    ),
    (&["/statusz"], "S", "", ""),
    (&["/flagz"], "F", "", ""),
    (
        &[
            "/exec/ns/pod/container",
            "/exec/ns/pod/uid/container",
            "/attach/ns/pod/container",
            "/attach/ns/pod/uid/container",
            "/portForward/ns/pod",
            "/portForward/ns/pod/uid",
            "/run/ns/pod/container",
            "/run/ns/pod/uid/container",
            "/containerLogs/ns/pod/container",
            "/debug/flags/v",
            "/debug/pprof/",
            "/debug/pprof/cmdline",
            "/debug/pprof/heap",
            "/debug/pprof/profile",
            "/debug/pprof/symbol",
            "/debug/pprof/trace",
            // What is no endpoint, and what only begins like one.
            "/",
            "",
            "/podsy",
            "/logsy/x",
            "/statuszy",
            "/PODS",
            "//pods",
            "/%6cogs/syslog",
        ],
        "P",
        "P",
        "P",
    ),
];

fn authenticated(groups: &[&str]) -> RequestUser {
    RequestUser::Authenticated(UserInfo {
        name: "someone".to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        ..UserInfo::default()
    })
}

#[test]
fn endpoints_are_allowed_to_whom_the_api_server_grants_them() {
    for (paths, get, post, other) in ENDPOINTS {
        for path in *paths {
            for (method, verb) in METHODS {
                let allowed = match *method {
                    "GET" => get,
                    "POST" => post,
                    _ => other,
                };
                let asked = attributes(method, path);
                assert_eq!(asked.verb, *verb, "{method} {path}");
                for (user, grants) in USERS {
                    let is_granted = |subresource: &&str| {
                        let mut grants = grants.iter();
                        grants.any(|(verb, granted)| {
                            granted == subresource && (*verb == "*" || *verb == asked.verb)
                        })
                    };
                    let found = asked.subresources.iter().any(is_granted);
                    assert_eq!(found, allowed.contains(*user), "{method} {path} by {user}");
                }
            }
        }
    }
}

#[test]
fn callers_are_allowed_refused_or_reviewed() {
    use AuthorizationMode::{AlwaysAllow, Webhook};
    /// A decision without its user.
    #[derive(Debug, PartialEq)]
    enum Expected {
        Allow,
        Unauthorized,
        Review,
    }
    use Expected::{Allow, Review, Unauthorized};
    let anonymous = RequestUser::Anonymous;
    let (user, master) = (authenticated(&[]), authenticated(&["system:masters"]));
    // The decisions with anonymous requests off, and on.
    for (mode, caller, off, on) in [
        (Webhook, &anonymous, Unauthorized, Review),
        (Webhook, &user, Review, Review),
        (Webhook, &master, Allow, Allow),
        (AlwaysAllow, &anonymous, Unauthorized, Allow),
        (AlwaysAllow, &user, Allow, Allow),
        (AlwaysAllow, &master, Allow, Allow),
    ] {
        for (is_on, expected) in [(false, off), (true, on)] {
            let decision = decide(mode, is_on, caller);
            let found = match &decision {
                AuthDecision::Allow => Allow,
                AuthDecision::Unauthorized => Unauthorized,
                AuthDecision::Review(user) => {
                    let name = if *caller == anonymous {
                        "system:anonymous"
                    } else {
                        "someone"
                    };
                    assert_eq!(user.name, name);
                    Review
                }
            };
            assert_eq!(found, expected, "{mode:?} {caller:?} {is_on}");
        }
    }
}
