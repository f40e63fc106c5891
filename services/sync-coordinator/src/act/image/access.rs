//! Whether a pod may use an image that another pod's pull has brought.

use polylet_model::constants::reason;
use polylet_model::{Manifest, image};

use super::super::Hands;
use super::credentials;
use super::words::invalid;
use crate::core::credentials::verify::{self, Access, Known};
use crate::core::learn::Trouble;

/// Whether a pod may use an image that is on the node, by what it was pulled with.
pub async fn may_use(
    hands: &Hands,
    manifest: &Manifest,
    reference: &str,
    image_ref: &str,
) -> Result<bool, Trouble> {
    let Some(records) = &hands.images.records else {
        return Ok(true);
    };
    let record = records.of(image_ref);
    let pulled = record.is_some() || records.is_announced(reference);
    if !hands.images.policy.asks(reference, pulled) {
        return Ok(true);
    }
    let (secrets, accounts) = match verify::known(record.as_ref(), reference) {
        Known::Open => return Ok(true),
        Known::Nothing => return Ok(false),
        Known::Shown(secrets, accounts) => (secrets, accounts),
    };
    let name = image::Reference::parse(reference).map_err(|e| invalid(e.to_string()))?;
    let logins = credentials::of_pod(hands, manifest, &name.name()).await;
    let logins = logins.map_err(|error| super::super::trouble(reason::ERR_IMAGE_PULL, &error))?;
    let Some((secret, news)) = verify::shown(&secrets, &logins) else {
        if accounts.is_empty() {
            return Ok(false);
        }
        let image = name.name();
        let logins = hands.images.providers.lookup(hands, manifest, &image);
        return Ok(verify::is_of(&accounts, &logins.await));
    };
    if news {
        let access = Access {
            kubernetes_secrets: vec![secret],
            ..Access::default()
        };
        if let Err(error) = records.note(image_ref, reference, Some(access)).await {
            let error = polylet_kit::report(&error);
            tracing::warn!(image = reference, error, "a pull secret is not recorded");
        }
    }
    Ok(true)
}
