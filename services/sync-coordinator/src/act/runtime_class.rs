//! The runtime handler that a pod's class stands for.
//!
//! Upstream asks the API server for the RuntimeClass, and refuses a pod whose class is not there.
//! Here the class is an object beside the pod's manifest, as its Secrets are.

use polylet_model::Manifest;
use polylet_model::constants::reason;
use polylet_wire::podconfig::v1::GetObjectRequest;
use polylet_wire::podconfig::v1::get_object_response::State;
use serde::Deserialize;

use super::{Hands, said};
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
    let failed = |why: String| {
        let pod = format!(
            "{}_{}({})",
            manifest.name(),
            manifest.namespace(),
            manifest.uid()
        );
        let message = format!("Failed to create sandbox for pod \"{pod}\": {why}");
        said(reason::CREATE_POD_SANDBOX_ERROR, message)
    };
    let request = GetObjectRequest {
        kind: "RuntimeClass".to_owned(),
        namespace: String::new(),
        name: class.to_owned(),
        ..GetObjectRequest::default()
    };
    let looked = |why: &str| failed(format!("failed to lookup RuntimeClass {class}: {why}"));
    let answer = hands.objects.clone().get_object(request).await;
    let answer = answer.map_err(|status| looked(status.message()))?;
    match answer.into_inner().state {
        Some(State::Manifest(json)) => serde_json::from_slice::<RuntimeClass>(&json)
            .map(|class| class.handler)
            .map_err(|error| looked(&error.to_string())),
        _ => Err(failed(format!(
            "runtimeclass.node.k8s.io \"{class}\" not found"
        ))),
    }
}
