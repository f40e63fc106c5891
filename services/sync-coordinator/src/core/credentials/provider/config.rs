//! `CredentialProviderConfig`: the plugins and the images they are for.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::config::parse_duration;
use serde::Deserialize;

use super::super::location;

const GROUP: &str = "kubelet.config.k8s.io";
const KIND: &str = "CredentialProviderConfig";
/// What plugins speak.
const SPOKEN: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// What is wrong in a configuration of plugins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {field}: {message}")]
pub struct ProviderConfigError {
    /// The file.
    pub file: String,
    /// The field; `document` for all of it.
    pub field: String,
    /// What was expected.
    pub message: String,
}

/// One plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// The program's name in the plugins' directory.
    pub name: String,
    /// Images that it is asked about.
    pub match_images: Vec<String>,
    /// How long an answer is good that does not say so itself.
    pub default_cache: Duration,
    /// The form of requests and answers.
    pub api_version: String,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables beside the process's own.
    pub env: Vec<(String, String)>,
    /// What it wants of the pod's service account, if anything.
    pub service_account: Option<ServiceAccount>,
}

/// What a plugin wants of a pod's service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAccount {
    /// It is not asked for pods without one.
    pub required: bool,
    /// Whom the account's token is for.
    pub audience: String,
    /// An answer is good for one token alone, and not for all of the account's.
    pub by_token: bool,
    /// Annotations of the account that it is told; it is not asked where one is missing.
    pub required_annotations: Vec<String>,
    /// Annotations that it is told where they are there.
    pub optional_annotations: Vec<String>,
}

impl Provider {
    /// Whether the plugin is asked about an image (its full name without tag or digest).
    pub fn is_for(&self, image: &str) -> bool {
        self.match_images
            .iter()
            .any(|place| location::covers(place, image))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    providers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    default_cache_duration: Option<String>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: Vec<EnvVar>,
    token_attributes: Option<TokenAttributes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EnvVar {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TokenAttributes {
    #[serde(default)]
    service_account_token_audience: String,
    #[serde(default)]
    cache_type: String,
    require_service_account: Option<bool>,
    #[serde(default)]
    required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    optional_service_account_annotation_keys: Vec<String>,
}

/// Plugins of one or more files, in their order; a name may stand once.
pub fn read(files: &[(String, String)]) -> Result<Vec<Provider>, ProviderConfigError> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut providers = Vec::new();
    for (file, text) in files {
        let wrong = |field: &str, message: String| ProviderConfigError {
            file: file.clone(),
            field: field.to_owned(),
            message,
        };
        let document: Document = serde_yaml_ng::from_str(text)
            .map_err(|error| wrong("document", format!("not a {KIND}: {error}")))?;
        let group = document.api_version.split_once('/').map(|(group, _)| group);
        if group != Some(GROUP) {
            let message = format!("{:?}: expected {GROUP}/v1", document.api_version);
            return Err(wrong("apiVersion", message));
        }
        if document.kind != KIND {
            return Err(wrong(
                "kind",
                format!("{:?}: expected {KIND}", document.kind),
            ));
        }
        for (at, entry) in document.providers.into_iter().enumerate() {
            let provider = check(entry)
                .map_err(|(field, message)| wrong(&format!("providers[{at}].{field}"), message))?;
            if let Some(first) = known.insert(provider.name.clone(), file.clone()) {
                let message = format!("{:?} stands in {first} already", provider.name);
                return Err(wrong(&format!("providers[{at}].name"), message));
            }
            providers.push(provider);
        }
    }
    if providers.is_empty() {
        return Err(ProviderConfigError {
            file: files
                .first()
                .map(|(file, _)| file.clone())
                .unwrap_or_default(),
            field: "providers".to_owned(),
            message: "at least one is required".to_owned(),
        });
    }
    Ok(providers)
}

fn check(entry: Entry) -> Result<Provider, (&'static str, String)> {
    let name = &entry.name;
    if name.is_empty() || name.contains(['/', ' ']) || name == "." || name == ".." {
        let message = format!("{name:?}: expected the name of a program, without '/' and spaces");
        return Err(("name", message));
    }
    if !SPOKEN.contains(&entry.api_version.as_str()) {
        let message = format!(
            "{:?}: expected one of {}",
            entry.api_version,
            SPOKEN.join(", ")
        );
        return Err(("apiVersion", message));
    }
    if entry.match_images.is_empty() {
        return Err(("matchImages", "at least one is required".to_owned()));
    }
    if let Some(bad) = entry
        .match_images
        .iter()
        .find(|i| location::key(i).is_none())
    {
        let message = format!("{bad:?}: expected a registry such as *.registry.example:5000/path");
        return Err(("matchImages", message));
    }
    let duration = entry.default_cache_duration.as_deref();
    let default_cache = duration
        .ok_or_else(|| "required, for example 12h".to_owned())
        .and_then(|text| parse_duration(text).map_err(|why| format!("{text:?}: {why}")))
        .map_err(|message| ("defaultCacheDuration", message))?;
    let service_account = entry.token_attributes.map(|t| token(t, &entry.api_version));
    Ok(Provider {
        name: entry.name,
        match_images: entry.match_images,
        default_cache,
        api_version: entry.api_version,
        args: entry.args,
        env: entry
            .env
            .into_iter()
            .map(|var| (var.name, var.value))
            .collect(),
        service_account: service_account.transpose()?,
    })
}

fn token(
    wanted: TokenAttributes,
    api_version: &str,
) -> Result<ServiceAccount, (&'static str, String)> {
    if api_version != SPOKEN[0] {
        let message = format!("only for plugins that speak {}", SPOKEN[0]);
        return Err(("tokenAttributes", message));
    }
    if wanted.service_account_token_audience.is_empty() {
        let field = "tokenAttributes.serviceAccountTokenAudience";
        return Err((field, "required".to_owned()));
    }
    if !["ServiceAccount", "Token"].contains(&wanted.cache_type.as_str()) {
        let message = format!("{:?}: expected ServiceAccount or Token", wanted.cache_type);
        return Err(("tokenAttributes.cacheType", message));
    }
    let field = "tokenAttributes.requireServiceAccount";
    let required = wanted
        .require_service_account
        .ok_or((field, "required".to_owned()))?;
    if !required && !wanted.required_service_account_annotation_keys.is_empty() {
        let message = "must be true where annotations are required".to_owned();
        return Err((field, message));
    }
    let (needed, optional) = (
        wanted.required_service_account_annotation_keys,
        wanted.optional_service_account_annotation_keys,
    );
    annotation_keys(&needed).map_err(|why| {
        let field = "tokenAttributes.requiredServiceAccountAnnotationKeys";
        (field, why)
    })?;
    annotation_keys(&optional).map_err(|why| {
        let field = "tokenAttributes.optionalServiceAccountAnnotationKeys";
        (field, why)
    })?;
    if let Some(both) = needed.iter().find(|key| optional.contains(key)) {
        let message = format!("{both:?}: annotation keys cannot be both required and optional");
        return Err(("tokenAttributes", message));
    }
    Ok(ServiceAccount {
        required,
        audience: wanted.service_account_token_audience,
        by_token: wanted.cache_type == "Token",
        required_annotations: needed,
        optional_annotations: optional,
    })
}

fn annotation_keys(keys: &[String]) -> Result<(), String> {
    for (at, key) in keys.iter().enumerate() {
        // Annotations are compared without regard to case when they are checked.
        if !is_qualified_name(&key.to_lowercase()) {
            return Err(format!("{key:?}: expected the key of an annotation"));
        }
        if keys.iter().take(at).any(|other| other == key) {
            return Err(format!("{key:?} stands there twice"));
        }
    }
    Ok(())
}

/// A name of at most 63 letters, digits, '-', '_' and '.', after a domain and '/' if it has one.
fn is_qualified_name(key: &str) -> bool {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let framed = |text: &str| text.starts_with(plain) && text.ends_with(plain);
    let is_label = |label: &str| framed(label) && label.chars().all(|c| plain(c) || c == '-');
    let is_domain = |text: &str| text.len() <= 253 && text.split('.').all(is_label);
    framed(name)
        && name.len() <= 63
        && name.chars().all(|c| plain(c) || "-_.".contains(c))
        && domain.is_none_or(is_domain)
}

#[cfg(test)]
mod tests;
