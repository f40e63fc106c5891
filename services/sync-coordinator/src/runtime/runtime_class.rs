//! The runtime handler of a pod's RuntimeClass.
//!
//! The kubelet gets the RuntimeClass from the API server, and rejects a pod whose class does not
//! exist. The class of a static pod is a file beside its manifest, like its Secrets.

use polylet_model::Manifest;
use polylet_model::constants::reason;
use serde::Deserialize;

use super::{RuntimeManager, failure, objects};
use crate::core::step::StepFailure;

#[derive(Deserialize)]
struct RuntimeClass {
    handler: String,
}

/// The handler of a pod; empty, which selects the runtime's default, without a class.
///
/// # Errors
/// The class does not exist, or the request for it has failed.
pub async fn handler(manager: &RuntimeManager, manifest: &Manifest) -> Result<String, StepFailure> {
    let class = manifest.spec().runtime_class_name.as_deref();
    let Some(class) = class.filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let failed = |message: String| failure(reason::CREATE_POD_SANDBOX_ERROR, message);
    let lookup_failed =
        |error: &str| failed(format!("failed to lookup RuntimeClass {class}: {error}"));
    let object = objects::get(manager, manifest, "RuntimeClass", "", class).await;
    match object.map_err(|status| lookup_failed(status.message()))? {
        Some(json) => serde_json::from_slice::<RuntimeClass>(&json)
            .map(|class| class.handler)
            .map_err(|error| lookup_failed(&error.to_string())),
        None => Err(failed(format!(
            "runtimeclass.node.k8s.io \"{class}\" not found"
        ))),
    }
}
