//! Certificate files: `kubelet-client-<time>.pem` with certificate and key, the link
//! `kubelet-client-current.pem` to the one in use, and `kubelet-client.key.tmp` with the key of a pending
//! request.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use polylet_kit::state_file;
use rcgen::KeyPair;
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

use crate::core::certificates::Validity;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("writing {path}")]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("generating a key")]
    Key(#[source] rcgen::Error),
}

/// The files of one certificate.
pub(super) struct CertificateStore {
    directory: PathBuf,
    /// `kubelet-client` or `kubelet-server`.
    name: &'static str,
}

impl CertificateStore {
    pub(super) fn new(directory: PathBuf, name: &'static str) -> Self {
        Self { directory, name }
    }

    /// The link to the certificate in use.
    pub(super) fn current(&self) -> PathBuf {
        self.directory.join(format!("{}-current.pem", self.name))
    }

    /// The key of the pending request, generated if there is none: a request is resumed after a restart.
    pub(super) fn pending_key(&self) -> Result<KeyPair, StoreError> {
        let path = self.pending_key_path();
        if let Some(key) = fs::read_to_string(&path)
            .ok()
            .and_then(|pem| KeyPair::from_pem(&pem).ok())
        {
            return Ok(key);
        }
        let written = |source| StoreError::Write {
            path: path.clone(),
            source,
        };
        create_directory(&self.directory).map_err(written)?;
        let key = KeyPair::generate().map_err(StoreError::Key)?;
        state_file::write(&path, key.serialize_pem().as_bytes()).map_err(written)?;
        Ok(key)
    }

    /// Removes the key of the pending request: the next one has a new key.
    pub(super) fn remove_pending_key(&self) {
        // It may not exist.
        let _ = fs::remove_file(self.pending_key_path());
    }

    fn pending_key_path(&self) -> PathBuf {
        self.directory.join(format!("{}.key.tmp", self.name))
    }

    /// Stores a new certificate and puts it in use.
    pub(super) fn save(
        &self,
        certificate: &str,
        key: &KeyPair,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.save_pair(certificate, &key.serialize_pem(), now)?;
        self.remove_pending_key();
        Ok(())
    }

    /// The same with a key from elsewhere, as PEM.
    pub(super) fn save_pair(
        &self,
        certificate: &str,
        key: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let name = format!("{}-{}.pem", self.name, now.strftime("%Y-%m-%d-%H-%M-%S"));
        let path = self.directory.join(&name);
        let text = format!("{}\n{}", certificate.trim_end(), key);
        let written = |path: &Path| {
            let path = path.to_owned();
            move |source| StoreError::Write { path, source }
        };
        create_directory(&self.directory).map_err(written(&self.directory))?;
        state_file::write(&path, text.as_bytes()).map_err(written(&path))?;
        // A link is not replaced in place, but created under another name and renamed.
        let (link, new_link) = (
            self.current(),
            self.directory.join(format!("{}-updated.pem", self.name)),
        );
        let _ = fs::remove_file(&new_link);
        std::os::unix::fs::symlink(&path, &new_link).map_err(written(&new_link))?;
        fs::rename(&new_link, &link).map_err(written(&link))?;
        let synced = fs::File::open(&self.directory).and_then(|directory| directory.sync_all());
        synced.map_err(written(&self.directory))
    }
}

/// Creates a directory and its parents.
pub(super) fn create_directory(directory: &Path) -> std::io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
}

/// Validity, names and addresses of a certificate.
pub(crate) fn read(pem: &[u8]) -> Option<(Validity, BTreeSet<String>)> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let time = |seconds| Timestamp::from_second(seconds).ok();
    let validity = Validity {
        from: time(validity.not_before.timestamp())?,
        until: time(validity.not_after.timestamp())?,
    };
    let names = certificate.subject_alternative_name().ok().flatten();
    let names = names
        .into_iter()
        .flat_map(|extension| &extension.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => address(bytes),
        _ => None,
    });
    Some((validity, names.collect()))
}

/// The subject of a certificate.
pub(crate) struct CertificateSubject {
    pub(super) name: String,
    /// The public key, as `SubjectPublicKeyInfo` in DER.
    pub(super) key: Vec<u8>,
}

pub(crate) fn subject(pem: &[u8]) -> Option<CertificateSubject> {
    let pem = Pem::iter_from_buffer(pem)
        .filter_map(Result::ok)
        .find(|pem| pem.label == "CERTIFICATE")?;
    let certificate = pem.parse_x509().ok()?;
    let name = certificate.subject().iter_common_name().next();
    let name = name.and_then(|name| name.as_str().ok()).unwrap_or_default();
    Some(CertificateSubject {
        name: name.to_owned(),
        key: certificate.public_key().raw.to_vec(),
    })
}

fn address(bytes: &[u8]) -> Option<String> {
    let ip: std::net::IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    Some(ip.to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn pending_key_is_retained_until_its_certificate_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let store = CertificateStore::new(dir.path().join("pki"), "kubelet-client");
        let key = store.pending_key().unwrap();
        assert_eq!(
            store.pending_key().unwrap().serialize_pem(),
            key.serialize_pem()
        );
        for second in [1, 2] {
            let params =
                rcgen::CertificateParams::new(vec!["n1".to_owned(), "192.0.2.7".to_owned()])
                    .unwrap();
            let made = params.self_signed(&key).unwrap().pem();
            store
                .save(&made, &key, Timestamp::from_second(second).unwrap())
                .unwrap();
        }
        assert_ne!(
            store.pending_key().unwrap().serialize_pem(),
            key.serialize_pem()
        );
        let current = fs::read(store.current()).unwrap();
        let (_, names) = read(&current).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["192.0.2.7", "n1"]);
        assert!(
            String::from_utf8(current)
                .unwrap()
                .contains(key.serialize_pem().trim())
        );
        let target = fs::read_link(store.current()).unwrap();
        assert!(
            target.ends_with("kubelet-client-1970-01-01-00-00-02.pem"),
            "{target:?}"
        );
        assert_eq!(
            fs::metadata(&target).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(read(b"nonsense"), None);
    }
}
