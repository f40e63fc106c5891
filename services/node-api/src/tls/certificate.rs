//! The self-signed serving certificate, generated once.

use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use polylet_kit::state_file;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::ServingTlsError;

/// The file with certificate and key: the existing one, or a new one for the node's name, `localhost` and
/// the node's address.
pub(super) fn load_or_generate(
    dir: &Path,
    node: &str,
    node_ip: Option<IpAddr>,
) -> Result<PathBuf, ServingTlsError> {
    let path = dir.join("node-api.pem");
    match fs::metadata(&path) {
        Ok(_) => return Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(ServingTlsError::Store { path, source }),
    }
    let pem = generate(node, node_ip).map_err(ServingTlsError::Generate)?;
    state_file::write(&path, pem.as_bytes()).map_err(|source| ServingTlsError::Store {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

fn generate(node: &str, node_ip: Option<IpAddr>) -> Result<String, rcgen::Error> {
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
    Ok(certificate.pem() + &key.serialize_pem())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn certificate_is_generated_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = load_or_generate(dir.path(), "node-1", None).expect("a certificate");
        let mode = fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let first = fs::read(&path).expect("the file");
        load_or_generate(dir.path(), "node-1", None).expect("the same");
        assert_eq!(first, fs::read(&path).expect("the file"));
    }
}
