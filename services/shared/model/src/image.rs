//! Image references: parsing, validation and canonical form, as containerd and the kubelet have them.

/// A parsed reference, with defaults applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageReference {
    /// `docker.io`, `registry.example:5000`…
    pub registry: String,
    /// `library/busybox`.
    pub repository: String,
    /// `None` where the reference has only a digest.
    pub tag: Option<String>,
    /// `sha256:…`.
    pub digest: Option<String>,
}

/// An invalid reference, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageReferenceError {
    /// Empty, or an invalid character.
    #[error("couldn't parse image name \"{0}\": invalid reference format")]
    Format(String),
    /// 64 hexadecimal digits: the id of an image.
    #[error(
        "couldn't parse image name \"{0}\": invalid repository name ({0}), cannot specify 64-byte hexadecimal strings"
    )]
    Id(String),
    /// Capital letters in the repository.
    #[error(
        "couldn't parse image name \"{name}\": invalid reference format: repository name ({repository}) must be lowercase"
    )]
    Uppercase {
        /// The reference.
        name: String,
        /// The repository, with its default prefix.
        repository: String,
    },
    /// More than 255 characters.
    #[error(
        "couldn't parse image name \"{0}\": repository name must not be more than 255 characters"
    )]
    TooLong(String),
}

impl ImageReference {
    /// Parses a reference in any form: `busybox`, `busybox:1.36`, `host:5000/a/b@sha256:…`.
    pub fn parse(text: &str) -> Result<Self, ImageReferenceError> {
        let invalid = || ImageReferenceError::Format(text.to_owned());
        if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ImageReferenceError::Id(text.to_owned()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        let (path, tag) = match split_tag(rest) {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        let (registry, repository) = split_registry(path);
        let repository = if registry == DOCKER_HUB && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        if repository.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ImageReferenceError::Uppercase {
                name: text.to_owned(),
                repository,
            });
        }
        let valid = is_registry(registry)
            && repository.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !valid {
            return Err(invalid());
        }
        if registry.len() + 1 + repository.len() > 255 {
            return Err(ImageReferenceError::TooLong(text.to_owned()));
        }
        let tag = match (tag, digest) {
            (None, None) => Some("latest".to_owned()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self {
            registry: registry.to_owned(),
            repository,
            tag,
            digest: digest.map(str::to_owned),
        })
    }

    /// The reference without tag and digest, the key of pull secrets: `docker.io/library/busybox`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The canonical form: `docker.io/library/busybox:latest`.
    pub fn canonical(&self) -> String {
        let mut out = self.name();
        if let Some(tag) = &self.tag {
            out.push(':');
            out.push_str(tag);
        }
        if let Some(digest) = &self.digest {
            out.push('@');
            out.push_str(digest);
        }
        out
    }
}

/// The reference for the runtime: unchanged, with `:latest` if it has neither tag nor digest, as in
/// upstream's requests.
pub fn with_default_tag(text: &str) -> Result<String, ImageReferenceError> {
    let reference = ImageReference::parse(text)?;
    let untagged = reference.digest.is_none() && split_tag(text).is_none();
    Ok(if untagged {
        format!("{text}:latest")
    } else {
        text.to_owned()
    })
}

/// The reference without its tag and digest; `None` if it is invalid.
pub fn without_tag(text: &str) -> Option<&str> {
    ImageReference::parse(text).ok()?;
    let name = text.split('@').next().unwrap_or(text);
    Some(split_tag(name).map_or(name, |(untagged, _)| untagged))
}

/// The canonical form of a reference.
pub fn normalize(text: &str) -> Result<String, ImageReferenceError> {
    ImageReference::parse(text).map(|reference| reference.canonical())
}

/// Whether two references have the same canonical form.
pub fn same_image(a: &str, b: &str) -> bool {
    a == b || matches!((normalize(a), normalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// The pull policy that the API fills in: `Always` for `latest` and for no tag.
pub fn default_pull_policy(text: &str) -> &'static str {
    // An invalid reference has the policy of any other tag, as upstream.
    match ImageReference::parse(text) {
        Ok(reference) if reference.tag.as_deref() == Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

const DOCKER_HUB: &str = "docker.io";

/// Splits a reference without a digest into name and tag; `None` without a tag. A colon is followed by
/// a tag after the last slash, and by a port before.
fn split_tag(text: &str) -> Option<(&str, &str)> {
    let last = text.rsplit('/').next()?;
    let (_, tag) = last.split_once(':')?;
    let name = text.strip_suffix(tag)?.strip_suffix(':')?;
    Some((name, tag))
}

/// The first component is a registry if it cannot be part of a repository's name: with a dot, a port
/// or a capital letter, or `localhost`.
fn split_registry(path: &str) -> (&str, &str) {
    match path.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':'])
                || first == "localhost"
                || first.bytes().any(|b| b.is_ascii_uppercase()) =>
        {
            let first = if first == "index.docker.io" {
                DOCKER_HUB
            } else {
                first
            };
            (first, rest)
        }
        _ => (DOCKER_HUB, path),
    }
}

fn is_registry(text: &str) -> bool {
    let (host_ok, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let Some((host, port)) = bracketed.split_once(']') else {
            return false;
        };
        let is_address = host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        (!host.is_empty() && is_address, port.strip_prefix(':'))
    } else {
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        };
        (host.split('.').all(is_host_part), port)
    };
    host_ok && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host_part(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Letters and digits, separated by `.`, `_`, `__` or dashes.
fn is_component(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    if !word(*first) || !word(*last) {
        return false;
    }
    bytes
        .split(|b| word(*b))
        .all(|gap| matches!(gap, b"" | b"." | b"_" | b"__") || gap.iter().all(|b| *b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else {
        return false;
    };
    let known_length = match algorithm {
        "sha256" => hex.len() == 64,
        "sha384" => hex.len() == 96,
        "sha512" => hex.len() == 128,
        _ => return false,
    };
    known_length && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
