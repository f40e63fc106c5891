//! Reading of kubeconfigs, and the user and the cluster of the current context.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, Cluster, Context, Kubeconfig, KubeconfigError};

/// Files beyond this size are no kubeconfig.
const MAX_BYTES: u64 = 16 << 20;

/// Reads a kubeconfig; relative paths in it are relative to its directory.
///
/// Used instead of [`Kubeconfig::read_from`], which panics on a truncated file in UTF-16 and reads
/// files of any size.
///
/// # Errors
/// The file cannot be read, is too large, or is not a kubeconfig.
pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
    let text = read_text(path);
    let text = text.map_err(|source| KubeconfigError::ReadConfig(source, path.to_owned()))?;
    let mut kubeconfig = Kubeconfig::from_yaml(&text)?;
    if let Some(directory) = path.parent() {
        make_absolute(&mut kubeconfig, directory);
    }
    Ok(kubeconfig)
}

fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(ErrorKind::FileTooLarge.into());
    }
    decode(bytes).ok_or_else(|| ErrorKind::InvalidData.into())
}

/// The text of a file in UTF-8, or in UTF-16 with a byte order mark, as YAML allows.
fn decode(bytes: Vec<u8>) -> Option<String> {
    let utf16 = |rest: &[u8], unit: fn([u8; 2]) -> u16| {
        let (pairs, odd) = rest.as_chunks::<2>();
        let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
        odd.is_empty().then(|| String::from_utf16(&units).ok())?
    };
    match bytes.as_slice() {
        [0xff, 0xfe, rest @ ..] => utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => utf16(rest, u16::from_be_bytes),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    }
}

fn make_absolute(kubeconfig: &mut Kubeconfig, directory: &Path) {
    let absolute = |path: &mut Option<String>| {
        if let Some(relative) = path.as_deref().map(PathBuf::from)
            && relative.is_relative()
            && let Ok(joined) = directory.join(relative).into_os_string().into_string()
        {
            *path = Some(joined);
        }
    };
    let clusters = kubeconfig.clusters.iter_mut();
    for cluster in clusters.filter_map(|named| named.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    let users = kubeconfig.auth_infos.iter_mut();
    for user in users.filter_map(|named| named.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec
                .command
                .as_ref()
                .is_some_and(|command| command.contains('/'))
        {
            // Others are found in `PATH`.
            absolute(&mut exec.command);
        }
    }
}

/// The user of the current context.
pub fn current_user(kubeconfig: &Kubeconfig) -> Option<&AuthInfo> {
    let name = current_context(kubeconfig)?.user.as_deref()?;
    let mut users = kubeconfig.auth_infos.iter();
    users.find(|user| user.name == name)?.auth_info.as_ref()
}

pub(crate) fn current_user_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut AuthInfo> {
    let name = current_context(kubeconfig)?.user.clone()?;
    let mut users = kubeconfig.auth_infos.iter_mut();
    users.find(|user| user.name == name)?.auth_info.as_mut()
}

pub(crate) fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = &current_context(kubeconfig)?.cluster;
    let mut clusters = kubeconfig.clusters.iter();
    clusters.find(|it| it.name == *name)?.cluster.as_ref()
}

pub(crate) fn current_cluster_mut(kubeconfig: &mut Kubeconfig) -> Option<&mut Cluster> {
    let name = current_context(kubeconfig)?.cluster.clone();
    let mut clusters = kubeconfig.clusters.iter_mut();
    clusters.find(|it| it.name == name)?.cluster.as_mut()
}

fn current_context(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let name = kubeconfig.current_context.as_deref()?;
    let mut contexts = kubeconfig.contexts.iter();
    contexts.find(|it| it.name == name)?.context.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
        clusters: [{name: k, cluster: {server: 'https://k', certificate-authority: ca.pem}}]\n\
        users: [{name: u, user: {client-certificate: /c.pem, client-key: k.pem, exec: {command: bin/x}}}]\n";

    fn read_bytes(bytes: &[u8]) -> Result<Kubeconfig, KubeconfigError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, bytes).unwrap();
        read(&path)
    }

    #[test]
    fn relative_paths_are_those_of_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        std::fs::write(&path, TEXT).unwrap();
        let ours = read(&path).unwrap();
        let theirs = Kubeconfig::read_from(&path).unwrap();
        assert_eq!(
            serde_json::to_value(&ours).unwrap(),
            serde_json::to_value(theirs).unwrap()
        );
        let user = current_user(&ours).unwrap();
        assert_eq!(user.client_certificate.as_deref(), Some("/c.pem"));
        let key = user.client_key.as_deref().unwrap();
        assert!(key.ends_with("/k.pem") && key.starts_with('/'), "{key}");
    }

    #[test]
    fn truncated_file_in_utf16_is_an_error() {
        let utf16 = |unit: fn(u16) -> [u8; 2]| -> Vec<u8> {
            "\u{feff}"
                .encode_utf16()
                .chain(TEXT.encode_utf16())
                .flat_map(unit)
                .collect()
        };
        for unit in [u16::to_le_bytes, u16::to_be_bytes] {
            let bytes = utf16(unit);
            assert!(read_bytes(&bytes).is_ok());
            assert!(read_bytes(&bytes[..bytes.len() - 1]).is_err());
        }
        assert!(read_bytes(b"\xff").is_err());
    }
}
