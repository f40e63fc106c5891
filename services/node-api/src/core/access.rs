//! Who may ask what.
//!
//! Upstream's rules: the verb comes from the method; the resource is `nodes` with a subresource that
//! follows from the path, and each candidate is tried until one allows.

use std::collections::BTreeMap;

/// How requests are authorised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Whoever is known may do everything.
    AlwaysAllow,
    /// The API server decides (SubjectAccessReview).
    Webhook,
}

/// Somebody known, in the words of a review.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Nobody known.
    Anonymous,
    /// By a client certificate signed by the client CA, or by a token.
    Known(User),
}

/// The answer to a request before it is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allow,
    /// 401: not known.
    Unauthorized,
    /// The API server says whether they may.
    Ask(User),
}

/// What a review would be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    /// In the order in which they are tried.
    pub(crate) subresources: Vec<&'static str>,
}

/// The attributes of a request.
pub(crate) fn attributes(method: &str, path: &str) -> Attributes {
    let verb = match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "get",
    };
    let below = |prefix: &str| path == prefix || path.starts_with(&format!("{prefix}/"));
    let subresources = if below("/stats") {
        vec!["stats"]
    } else if below("/metrics") {
        vec!["metrics"]
    } else if below("/logs") {
        vec!["log"]
    } else if below("/checkpoint") {
        vec!["checkpoint"]
    } else if below("/healthz") {
        vec!["healthz", "proxy"]
    } else if below("/pods") || below("/runningpods") {
        vec!["pods", "proxy"]
    } else if below("/configz") || below("/flagz") {
        vec!["configz", "proxy"]
    } else if below("/statusz") {
        vec!["statusz", "proxy"]
    } else {
        vec!["proxy"]
    };
    Attributes { verb, subresources }
}

/// Decides what this node can decide alone: the group that Kubernetes itself lets do everything may
/// do so with no API server to ask, too.
pub(crate) fn decide(mode: Mode, anonymous: bool, caller: &Caller) -> Verdict {
    let mut user = match caller {
        Caller::Anonymous if !anonymous => return Verdict::Unauthorized,
        Caller::Anonymous => User {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..User::default()
        },
        Caller::Known(user) => user.clone(),
    };
    let everything = user.groups.iter().any(|group| group == "system:masters");
    if mode == Mode::AlwaysAllow || everything {
        return Verdict::Allow;
    }
    let known = "system:authenticated";
    if *caller != Caller::Anonymous && !user.groups.iter().any(|group| group == known) {
        user.groups.push(known.to_owned());
    }
    Verdict::Ask(user)
}

/// What somebody is told who may not.
pub(crate) fn forbidden(user: &User, attributes: &Attributes) -> String {
    format!(
        "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])\n",
        user.name,
        attributes.verb,
        attributes.subresources.join(" ")
    )
}
