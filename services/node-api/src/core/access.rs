//! Authorization of requests, by upstream's rules: the verb follows from the method, and the resource is
//! `nodes` with a subresource that follows from the path; a request is allowed if one of the candidates is.

use std::collections::BTreeMap;

/// How requests are authorized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuthorizationMode {
    /// Every authenticated user may do everything.
    AlwaysAllow,
    /// The API server decides (SubjectAccessReview).
    Webhook,
}

/// An authenticated user, as reviews describe it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct UserInfo {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) groups: Vec<String>,
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestUser {
    /// Not authenticated.
    Anonymous,
    /// Authenticated by a certificate of the client CA, or by a token.
    Authenticated(UserInfo),
}

/// The decision about a request, as far as this node makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AuthDecision {
    Allow,
    /// 401: authentication is required.
    Unauthorized,
    /// The API server decides.
    Review(UserInfo),
}

/// The attributes of a request that are reviewed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: &'static str,
    /// Candidates, in the order in which they are reviewed.
    pub(crate) subresources: Vec<&'static str>,
}

/// The attributes of a request.
pub(crate) fn attributes(method: &str, path: &str) -> Attributes {
    let verb = match method {
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "GET" => "get",
        _ => "",
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
    } else if below("/configz") {
        vec!["configz", "proxy"]
    } else if below("/flagz") {
        vec!["configz"]
    } else if below("/statusz") {
        vec!["statusz"]
    } else {
        vec!["proxy"]
    };
    Attributes { verb, subresources }
}

/// Decides without the API server where possible: members of `system:masters`, whom Kubernetes always
/// allows everything, need no review.
pub(crate) fn decide(
    mode: AuthorizationMode,
    anonymous: bool,
    caller: &RequestUser,
) -> AuthDecision {
    let mut user = match caller {
        RequestUser::Anonymous if !anonymous => return AuthDecision::Unauthorized,
        RequestUser::Anonymous => UserInfo {
            name: "system:anonymous".to_owned(),
            groups: vec!["system:unauthenticated".to_owned()],
            ..UserInfo::default()
        },
        RequestUser::Authenticated(user) => user.clone(),
    };
    let is_master = user.groups.iter().any(|group| group == "system:masters");
    if mode == AuthorizationMode::AlwaysAllow || is_master {
        return AuthDecision::Allow;
    }
    let authenticated = "system:authenticated";
    if *caller != RequestUser::Anonymous && !user.groups.iter().any(|group| group == authenticated)
    {
        user.groups.push(authenticated.to_owned());
    }
    AuthDecision::Review(user)
}

/// The message of a 403 response.
pub(crate) fn forbidden(user: &UserInfo, attributes: &Attributes) -> String {
    format!(
        "Forbidden (user={}, verb={}, resource=nodes, subresource(s)=[{}])\n",
        user.name,
        attributes.verb,
        attributes.subresources.join(" ")
    )
}

/// The message of a 500 response, when a review failed.
pub(crate) fn authorization_error(user: &UserInfo, verb: &str, subresource: &str) -> String {
    let name = &user.name;
    format!(
        "Authorization error (user={name}, verb={verb}, resource=nodes, subresource={subresource})"
    )
}

#[cfg(test)]
#[path = "access_tests.rs"]
mod tests;
