//! The runtime handler that a pod's class stands for.
//!
//! Upstream asks the API server for the RuntimeClass, and refuses a pod whose class is not there.
//! The class of a static pod is an object beside its manifest, as its Secrets are.

use polylet_model::Manifest;
use polylet_model::constants::reason;
use serde::Deserialize;

use super::{Hands, object, said};
use crate::core::learn::Trouble;

#[derive(Deserialize)]
struct RuntimeClass {
    handler: String,
}

/// The handler; empty, which means the runtime's default, of a pod without a class.
///
/// # Errors
/// When there is no such class, or it cannot be asked for.
pub async fn handler(hands: &Hands, manifest: &Manifest) -> Result<String, Trouble> {
    let class = manifest.spec().runtime_class_name.as_deref();
    let Some(class) = class.filter(|name| !name.is_empty()) else {
        return Ok(String::new());
    };
    let failed = |why: String| said(reason::CREATE_POD_SANDBOX_ERROR, why);
    let looked = |why: &str| failed(format!("failed to lookup RuntimeClass {class}: {why}"));
    let answer = object::get(hands, manifest, "RuntimeClass", "", class).await;
    match answer.map_err(|status| looked(status.message()))? {
        Some(json) => serde_json::from_slice::<RuntimeClass>(&json)
            .map(|class| class.handler)
            .map_err(|error| looked(&error.to_string())),
        None => Err(failed(format!(
            "runtimeclass.node.k8s.io \"{class}\" not found"
        ))),
    }
}
