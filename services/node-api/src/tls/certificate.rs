//! The self-made serving certificate: made once, then kept.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, DnType, KeyPair, SanType};

use super::TlsError;

/// The file with certificate and key: the kept one, or a new one (mode 0600, for this node's name,
/// localhost and the node's address).
pub(super) fn kept_or_made(
    dir: &Path,
    node: &str,
    node_ip: Option<IpAddr>,
) -> Result<PathBuf, TlsError> {
    let path = dir.join("node-api.pem");
    match fs::metadata(&path) {
        Ok(_) => return Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(source) => return Err(TlsError::Keep { path, source }),
    }
    let pem = make(node, node_ip).map_err(TlsError::Make)?;
    write(dir, &path, pem.as_bytes()).map_err(|source| TlsError::Keep {
        path: path.clone(),
        source,
    })?;
    Ok(path)
}

fn make(node: &str, node_ip: Option<IpAddr>) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(vec![node.to_owned(), "localhost".to_owned()])?;
    let addresses = [IpAddr::from([127, 0, 0, 1])].into_iter().chain(node_ip);
    params
        .subject_alt_names
        .extend(addresses.map(SanType::IpAddress));
    params.distinguished_name.push(DnType::CommonName, node);
    // Nobody renews it: it lasts as long as a node does. Operators who want more bring their own.
    params.not_after = rcgen::date_time_ymd(2100, 1, 1);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

/// Written aside and renamed, so that a half-written key is never read.
fn write(dir: &Path, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let aside = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&aside, path)?;
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_certificate_is_made_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = kept_or_made(dir.path(), "node-1", None).expect("a certificate");
        let mode = fs::metadata(&path).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let first = fs::read(&path).expect("the file");
        kept_or_made(dir.path(), "node-1", None).expect("the same");
        assert_eq!(first, fs::read(&path).expect("the file"));
    }
}
