//! References to images: their full form and whether they can name one.

/// A reference taken apart, with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// `docker.io`, `registry.example:5000`…
    pub registry: String,
    /// `library/busybox`.
    pub repository: String,
    /// Absent when only a digest names the image.
    pub tag: Option<String>,
    /// `sha256:…`.
    pub digest: Option<String>,
}

/// Why a reference can name no image, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// There is nothing, or a letter where none may stand.
    #[error("couldn't parse image name \"{0}\": invalid reference format")]
    Format(String),
    /// Sixty-four hexadecimal digits: an image's id.
    #[error(
        "couldn't parse image name \"{0}\": invalid repository name ({0}), cannot specify 64-byte hexadecimal strings"
    )]
    Id(String),
    /// Capital letters in the repository.
    #[error(
        "couldn't parse image name \"{name}\": invalid reference format: repository name ({repository}) must be lowercase"
    )]
    Uppercase {
        /// As it was written.
        name: String,
        /// The part that is wrong, completed.
        repository: String,
    },
    /// More than 255 letters.
    #[error(
        "couldn't parse image name \"{0}\": repository name must not be more than 255 characters"
    )]
    TooLong(String),
}

impl Reference {
    /// Reads a reference as people write it: `busybox`, `busybox:1.36`,
    /// `host:5000/a/b@sha256:…`.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let wrong = || ImageError::Format(text.to_owned());
        if text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(ImageError::Id(text.to_owned()));
        }
        let (rest, digest) = match text.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (text, None),
        };
        // A colon after the last slash starts a tag; before it, a port.
        let last = rest.rfind('/').map_or(0, |at| at + 1);
        let (path, tag) = match rest[last..].split_once(':') {
            Some((_, tag)) => (&rest[..rest.len() - tag.len() - 1], Some(tag)),
            None => (rest, None),
        };
        let (registry, repository) = split_registry(path);
        let repository = if registry == DOCKER_HUB && !repository.contains('/') {
            format!("library/{repository}")
        } else {
            repository.to_owned()
        };
        if repository.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ImageError::Uppercase {
                name: text.to_owned(),
                repository,
            });
        }
        let valid = is_registry(registry)
            && repository.split('/').all(is_component)
            && tag.is_none_or(is_tag)
            && digest.is_none_or(is_digest);
        if !valid {
            return Err(wrong());
        }
        if registry.len() + 1 + repository.len() > 255 {
            return Err(ImageError::TooLong(text.to_owned()));
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

    /// The reference without tag and digest, which is what passwords are looked up for:
    /// `docker.io/library/busybox`.
    pub fn name(&self) -> String {
        format!("{}/{}", self.registry, self.repository)
    }

    /// The whole of it: `docker.io/library/busybox:latest`.
    pub fn full(&self) -> String {
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

/// What the runtime is asked for: the reference as it is written, with
/// `:latest` where neither tag nor digest stand, as upstream asks.
pub fn with_default_tag(text: &str) -> Result<String, ImageError> {
    let reference = Reference::parse(text)?;
    let untagged = reference.digest.is_none() && !has_tag(text);
    Ok(if untagged {
        format!("{text}:latest")
    } else {
        text.to_owned()
    })
}

/// A reference as it is written, less its tag and digest; none where it cannot be read.
pub fn without_tag(text: &str) -> Option<&str> {
    Reference::parse(text).ok()?;
    let name = text.split('@').next().unwrap_or(text);
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let end = name[last..].find(':').map_or(name.len(), |at| last + at);
    name.get(..end)
}

/// The full form of a reference.
pub fn normalize(text: &str) -> Result<String, ImageError> {
    Reference::parse(text).map(|reference| reference.full())
}

/// Whether two references name the same image, however they are written.
pub fn same(a: &str, b: &str) -> bool {
    a == b || matches!((normalize(a), normalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// The pull policy that the API fills in: `Always` for `latest` and for no tag.
pub fn default_pull_policy(text: &str) -> &'static str {
    // A reference that cannot be read gets the policy of any other tag, as upstream.
    match Reference::parse(text) {
        Ok(reference) if reference.tag.as_deref() == Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

const DOCKER_HUB: &str = "docker.io";

fn has_tag(text: &str) -> bool {
    let last = text.rfind('/').map_or(0, |at| at + 1);
    text[last..].contains(':')
}

/// The first part is a registry if it could be no repository: a dot, a port,
/// `localhost` or a capital letter.
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
    let (host, port) = if text.starts_with('[') {
        match text.split_once(']') {
            Some((host, port)) => (&host[1..], port.strip_prefix(':')),
            None => return false,
        }
    } else {
        match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    let host_ok = if text.starts_with('[') {
        !host.is_empty() && host.bytes().all(|b| b.is_ascii_hexdigit() || b == b':')
    } else {
        host.split('.').all(is_host_part)
    };
    host_ok && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

fn is_host_part(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Runs of letters and digits with `.`, `_`, `__` or dashes between them.
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
