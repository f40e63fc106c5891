//! Whether a pod may use an image that was pulled for another pod.

use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::super::{RuntimeManager, failure_from, metrics};
use super::credentials;
use super::messages::invalid_image;
use super::records::PullRecords;
use crate::core::credentials::verify;
use crate::core::credentials::verify::{ImageAccess, ImagePullCredentials};
use crate::core::step::StepFailure;

/// Whether a pod may use a present image, by the credentials that it was pulled with.
pub async fn may_use(
    manager: &RuntimeManager,
    manifest: &Manifest,
    reference: &str,
    image_ref: &str,
) -> Result<bool, StepFailure> {
    let Some(records) = &manager.images.records else {
        return Ok(true);
    };
    let result = check(manager, records, manifest, reference, image_ref).await;
    metrics::images::count_check(match &result {
        Ok(CheckedAccess::ByPolicy) => "credentialPolicyAllowed",
        Ok(CheckedAccess::ByRecord) => "credentialRecordFound",
        Ok(CheckedAccess::Denied) => "mustAuthenticate",
        Ok(CheckedAccess::Unreadable) | Err(_) => "error",
    });
    result.map(|access| matches!(access, CheckedAccess::ByPolicy | CheckedAccess::ByRecord))
}

/// The result of a check.
enum CheckedAccess {
    /// The policy asks for no check.
    ByPolicy,
    /// By the credentials that the image was pulled with.
    ByRecord,
    Denied,
    /// The record is unreadable: the registry decides, whatever the policy, as upstream.
    Unreadable,
}

async fn check(
    manager: &RuntimeManager,
    records: &PullRecords,
    manifest: &Manifest,
    reference: &str,
    image_ref: &str,
) -> Result<CheckedAccess, StepFailure> {
    if records.is_unreadable(image_ref, reference) {
        return Ok(CheckedAccess::Unreadable);
    }
    let record = records.get(image_ref);
    let pulled = record.is_some() || records.is_pending(reference);
    if !manager
        .images
        .policy
        .requires_verification(reference, pulled)
    {
        return Ok(CheckedAccess::ByPolicy);
    }
    let (secrets, accounts) = match verify::image_access(record.as_ref(), reference) {
        ImageAccess::AnyPod => return Ok(CheckedAccess::ByRecord),
        ImageAccess::Unknown => return Ok(CheckedAccess::Denied),
        ImageAccess::Restricted(secrets, accounts) => (secrets, accounts),
    };
    let name = image::ImageReference::parse(reference).map_err(|e| invalid_image(e.to_string()))?;
    let logins = credentials::pull_secret_logins(manager, manifest, &name.name()).await;
    let logins = logins.map_err(|error| failure_from(reason::ERR_IMAGE_PULL, &error))?;
    let Some((secret, is_new)) = verify::matching_secret(&secrets, &logins) else {
        if accounts.is_empty() {
            return Ok(CheckedAccess::Denied);
        }
        let image = name.name();
        let logins = manager.images.plugins.lookup(manager, manifest, &image);
        let matches = verify::matches_service_account(&accounts, &logins.await);
        return Ok(if matches {
            CheckedAccess::ByRecord
        } else {
            CheckedAccess::Denied
        });
    };
    if is_new {
        let access = ImagePullCredentials {
            kubernetes_secrets: vec![secret],
            ..ImagePullCredentials::default()
        };
        if let Err(error) = records
            .record_pulled(image_ref, reference, Some(access))
            .await
        {
            let error = polylet_kit::report(&error);
            tracing::warn!(
                image = reference,
                error,
                "failed to record image pull secret"
            );
        }
    }
    Ok(CheckedAccess::ByRecord)
}
