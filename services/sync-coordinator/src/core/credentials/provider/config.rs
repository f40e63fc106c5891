//! `CredentialProviderConfig`: the plugins and the images they serve.

use std::collections::BTreeMap;
use std::time::Duration;

use polylet_kit::config::parse_duration;
use serde::Deserialize;

use crate::core::credentials::location::{self, MatchBudget};

const GROUP: &str = "kubelet.config.k8s.io";
const KIND: &str = "CredentialProviderConfig";
/// Supported API versions of plugins.
const API_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];

/// An invalid plugin configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {field}: {message}")]
pub struct ProviderConfigError {
    /// The file.
    pub file: String,
    /// The field; `document` for the whole file.
    pub field: String,
    /// What is expected.
    pub message: String,
}

/// A configured plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialProvider {
    /// Name of the executable in the plugin directory.
    pub name: String,
    /// Patterns of the images that it serves.
    pub match_images: Vec<String>,
    /// How long a response without a duration is cached.
    pub default_cache_duration: Duration,
    /// API version of requests and responses.
    pub api_version: String,
    /// Command line arguments.
    pub args: Vec<String>,
    /// Additional environment variables.
    pub env: Vec<(String, String)>,
    /// How it uses the pod's service account, if at all.
    pub token_attributes: Option<TokenAttributes>,
}

/// How a plugin uses the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenAttributes {
    /// Whether it is skipped for pods without one.
    pub requires_service_account: bool,
    /// Audience of the token.
    pub audience: String,
    /// Whether responses are cached per token; otherwise per service account.
    pub cache_per_token: bool,
    /// Annotations that it receives, and without which it is skipped.
    pub required_annotations: Vec<String>,
    /// Annotations that it receives if present.
    pub optional_annotations: Vec<String>,
}

impl CredentialProvider {
    /// Whether the plugin serves an image (full name without tag or digest).
    pub fn matches_image(&self, image: &str) -> bool {
        let mut budget = MatchBudget::default();
        self.match_images
            .iter()
            .any(|pattern| location::matches(pattern, image, &mut budget))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigDocument {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    providers: Vec<ProviderEntry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProviderEntry {
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
    token_attributes: Option<TokenAttributesEntry>,
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
struct TokenAttributesEntry {
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

/// Parses the plugins of one or more files, in order. Names must be unique.
pub fn parse(files: &[(String, String)]) -> Result<Vec<CredentialProvider>, ProviderConfigError> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut providers = Vec::new();
    for (file, text) in files {
        let invalid = |field: &str, message: String| ProviderConfigError {
            file: file.clone(),
            field: field.to_owned(),
            message,
        };
        let document: ConfigDocument = serde_yaml_ng::from_str(text)
            .map_err(|error| invalid("document", format!("not a {KIND}: {error}")))?;
        let group = document.api_version.split_once('/').map(|(group, _)| group);
        if group != Some(GROUP) {
            let message = format!("{:?}: expected {GROUP}/v1", document.api_version);
            return Err(invalid("apiVersion", message));
        }
        if document.kind != KIND {
            return Err(invalid(
                "kind",
                format!("{:?}: expected {KIND}", document.kind),
            ));
        }
        for (at, entry) in document.providers.into_iter().enumerate() {
            let provider = parse_provider(entry).map_err(|(field, message)| {
                invalid(&format!("providers[{at}].{field}"), message)
            })?;
            if let Some(first) = known.insert(provider.name.clone(), file.clone()) {
                let message = format!("{:?} is already configured in {first}", provider.name);
                return Err(invalid(&format!("providers[{at}].name"), message));
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

fn parse_provider(entry: ProviderEntry) -> Result<CredentialProvider, (&'static str, String)> {
    let name = &entry.name;
    if name.is_empty() || name.contains(['/', ' ']) || name == "." || name == ".." {
        let message = format!("{name:?}: expected the name of a program, without '/' and spaces");
        return Err(("name", message));
    }
    if !API_VERSIONS.contains(&entry.api_version.as_str()) {
        let message = format!(
            "{:?}: expected one of {}",
            entry.api_version,
            API_VERSIONS.join(", ")
        );
        return Err(("apiVersion", message));
    }
    if entry.match_images.is_empty() {
        return Err(("matchImages", "at least one is required".to_owned()));
    }
    if let Some(bad) = entry
        .match_images
        .iter()
        .find(|i| location::normalize(i).is_none())
    {
        let message = format!("{bad:?}: expected a registry such as *.registry.example:5000/path");
        return Err(("matchImages", message));
    }
    let duration = entry.default_cache_duration.as_deref();
    let default_cache = duration
        .ok_or_else(|| "required, for example 12h".to_owned())
        .and_then(|text| parse_duration(text).map_err(|error| format!("{text:?}: {error}")))
        .map_err(|message| ("defaultCacheDuration", message))?;
    let service_account = entry
        .token_attributes
        .map(|t| parse_token_attributes(t, &entry.api_version));
    Ok(CredentialProvider {
        name: entry.name,
        match_images: entry.match_images,
        default_cache_duration: default_cache,
        api_version: entry.api_version,
        args: entry.args,
        env: entry
            .env
            .into_iter()
            .map(|var| (var.name, var.value))
            .collect(),
        token_attributes: service_account.transpose()?,
    })
}

fn parse_token_attributes(
    attributes: TokenAttributesEntry,
    api_version: &str,
) -> Result<TokenAttributes, (&'static str, String)> {
    if api_version != API_VERSIONS[0] {
        let message = format!("only supported with {}", API_VERSIONS[0]);
        return Err(("tokenAttributes", message));
    }
    if attributes.service_account_token_audience.is_empty() {
        let field = "tokenAttributes.serviceAccountTokenAudience";
        return Err((field, "required".to_owned()));
    }
    if !["ServiceAccount", "Token"].contains(&attributes.cache_type.as_str()) {
        let message = format!(
            "{:?}: expected ServiceAccount or Token",
            attributes.cache_type
        );
        return Err(("tokenAttributes.cacheType", message));
    }
    let field = "tokenAttributes.requireServiceAccount";
    let required = attributes
        .require_service_account
        .ok_or((field, "required".to_owned()))?;
    if !required
        && !attributes
            .required_service_account_annotation_keys
            .is_empty()
    {
        let message = "must be true where annotations are required".to_owned();
        return Err((field, message));
    }
    let (required_keys, optional_keys) = (
        attributes.required_service_account_annotation_keys,
        attributes.optional_service_account_annotation_keys,
    );
    annotation_keys(&required_keys).map_err(|message| {
        let field = "tokenAttributes.requiredServiceAccountAnnotationKeys";
        (field, message)
    })?;
    annotation_keys(&optional_keys).map_err(|message| {
        let field = "tokenAttributes.optionalServiceAccountAnnotationKeys";
        (field, message)
    })?;
    if let Some(both) = required_keys.iter().find(|key| optional_keys.contains(key)) {
        let message = format!("{both:?}: annotation keys cannot be both required and optional");
        return Err(("tokenAttributes", message));
    }
    Ok(TokenAttributes {
        requires_service_account: required,
        audience: attributes.service_account_token_audience,
        cache_per_token: attributes.cache_type == "Token",
        required_annotations: required_keys,
        optional_annotations: optional_keys,
    })
}

fn annotation_keys(keys: &[String]) -> Result<(), String> {
    for (at, key) in keys.iter().enumerate() {
        // As upstream, the check ignores case.
        if !is_qualified_name(&key.to_lowercase()) {
            return Err(format!("{key:?}: expected the key of an annotation"));
        }
        if keys.iter().take(at).any(|other| other == key) {
            return Err(format!("{key:?} is a duplicate"));
        }
    }
    Ok(())
}

/// A qualified name: at most 63 letters, digits, '-', '_' and '.', with an optional domain and '/'
/// before it.
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
