//! The self-signed serving certificate and its key, under upstream's names, generated once.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use polylet_kit::state_file;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::ServingTlsError;

/// The files of certificate and key: existing ones, also of a kubelet, or new ones for the node's name,
/// `localhost` and the node's address.
pub(super) fn load_or_generate(
    directory: &Path,
    node: &str,
    node_ip: Option<IpAddr>,
) -> Result<(PathBuf, PathBuf), ServingTlsError> {
    let certificate = directory.join("kubelet.crt");
    let key = directory.join("kubelet.key");
    if exists(&certificate)? {
        return if exists(&key)? {
            Ok((certificate, key))
        } else {
            Err(ServingTlsError::Unpaired { path: key })
        };
    }
    let (certificate_pem, key_pem) = generate(node, node_ip).map_err(ServingTlsError::Generate)?;
    let stored = |path: &Path, source| ServingTlsError::Store {
        path: path.to_owned(),
        source,
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(directory)
        .map_err(|source| stored(directory, source))?;
    // The certificate comes last: a key without one is of an interrupted start, and is replaced.
    for (path, pem) in [(&key, key_pem), (&certificate, certificate_pem)] {
        state_file::write(path, pem.as_bytes()).map_err(|source| stored(path, source))?;
    }
    Ok((certificate, key))
}

fn exists(path: &Path) -> Result<bool, ServingTlsError> {
    match fs::metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ServingTlsError::Store {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Certificate and key as PEM.
fn generate(node: &str, node_ip: Option<IpAddr>) -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(vec![node.to_owned(), "localhost".to_owned()])?;
    let addresses = [IpAddr::from([127, 0, 0, 1])].into_iter().chain(node_ip);
    params
        .subject_alt_names
        .extend(addresses.map(SanType::IpAddress));
    params.distinguished_name.push(DnType::CommonName, node);
    // It is never renewed and outlives the node; operators may configure another one.
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn pair_is_generated_once_under_the_names_of_the_kubelet() {
        let root = tempfile::tempdir().expect("a directory");
        let pki = root.path().join("pki");
        let generate = || load_or_generate(&pki, "node-1", None);
        let (certificate, key) = generate().expect("a pair");
        assert_eq!(certificate, pki.join("kubelet.crt"));
        assert_eq!(key, pki.join("kubelet.key"));
        let mode = fs::metadata(&key).expect("the key").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = || [&certificate, &key].map(|path| fs::read(path).expect("a file"));
        let first = read();
        generate().expect("the same");
        assert_eq!(first, read());

        // A start was interrupted after it had written the key.
        fs::remove_file(&certificate).expect("the certificate");
        generate().expect("another pair");
        let [new_certificate, new_key] = read();
        assert!(new_certificate != first[0] && new_key != first[1]);

        fs::remove_file(&key).expect("the key");
        let error = generate().expect_err("no key").to_string();
        assert!(error.ends_with("kubelet.key, certificate and key must be supplied as a pair"));
    }
}
