//! Shares: Azure File, Portworx.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::Translation;

const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";
const AUTH_SECRET_NAME: &str = "openstorage.io/auth-secret-name";
const AUTH_SECRET_NAMESPACE: &str = "openstorage.io/auth-secret-namespace";

pub(super) fn azure_file(
    source: &api::AzureFilePersistentVolumeSource,
    metadata: &ObjectMeta,
    claim: Option<&api::ObjectReference>,
) -> Result<Translation, String> {
    let namespace = match &source.secret_namespace {
        Some(namespace) => Some(namespace),
        None => claim.and_then(|claim| claim.namespace.as_ref()),
    };
    let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) else {
        let error = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
        return Err(error.to_owned());
    };
    let group = annotation(metadata, RESOURCE_GROUP).map_or("", String::as_str);
    let name = metadata.name.as_deref().unwrap_or_default();
    let account = account(&source.secret_name);
    let handle = format!("{group}#{account}#{}#{name}#{namespace}", source.share_name);
    let share = share(&handle, &source.share_name, &source.secret_name, namespace);
    Ok(share.with_read_only(source.read_only))
}

pub(super) fn azure_file_inline(
    source: &api::AzureFileVolumeSource,
    volume: &str,
    namespace: &str,
) -> Translation {
    let namespace = match namespace {
        "" => "default",
        namespace => namespace,
    };
    let account = account(&source.secret_name);
    let handle = format!("#{account}#{}#{volume}#{namespace}", source.share_name);
    let share = share(&handle, &source.share_name, &source.secret_name, namespace);
    share.with_read_only(source.read_only)
}

fn share(handle: &str, share: &str, secret: &str, namespace: &str) -> Translation {
    let mut translation = Translation::new("file.csi.azure.com", handle);
    translation.source.node_stage_secret_ref = Some(api::SecretReference {
        name: Some(secret.to_owned()),
        namespace: Some(namespace.to_owned()),
    });
    translation.with_attributes([("sharename", share)])
}

/// The storage account in the name of a secret: `azure-storage-account-<name>-secret`.
fn account(secret: &str) -> &str {
    let found = secret.split_once("azure-storage-account-");
    let found = found.and_then(|(_, rest)| Some(rest.rsplit_once("-secret")?.0));
    found.filter(|name| !name.is_empty()).unwrap_or(secret)
}

pub(super) fn portworx(source: &api::PortworxVolumeSource) -> Translation {
    Translation::new("pxd.portworx.com", &source.volume_id)
        .with_fs_type(source.fs_type.as_ref())
        .with_attributes([])
}

pub(super) fn portworx_persistent(
    source: &api::PortworxVolumeSource,
    metadata: &ObjectMeta,
) -> Translation {
    let mut translation = portworx(source);
    let name = annotation(metadata, AUTH_SECRET_NAME);
    let namespace = annotation(metadata, AUTH_SECRET_NAMESPACE);
    if let (Some(name), Some(namespace)) = (name, namespace) {
        let secret = Some(api::SecretReference {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
        });
        let source = &mut translation.source;
        source.controller_publish_secret_ref = secret.clone();
        source.node_stage_secret_ref = secret.clone();
        source.node_publish_secret_ref = secret.clone();
        source.controller_expand_secret_ref = secret.clone();
        source.node_expand_secret_ref = secret;
    }
    translation
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a String> {
    let annotations: Option<&BTreeMap<_, _>> = metadata.annotations.as_ref();
    annotations?.get(key)
}
