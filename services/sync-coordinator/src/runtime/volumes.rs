//! Declarations of desired volumes to volume-manager.

use std::rc::Rc;

use polylet_kit::Ctx;
use polylet_wire::volume::v1::{ApplyPodRequest, ReleasePodRequest};
use tonic::{Code, Status};

use super::{RuntimeManager, StepContext, failure, require_manifest};
use crate::convert;
use crate::core::step::{StepFailure, StepOutcome};

/// The client ID of an epoch of this process instance.
pub fn client_id(ctx: &Ctx, epoch: u32) -> String {
    format!("{}-{epoch}", ctx.incarnation())
}

/// The failure of a call to volume-manager.
pub fn volume_failure(status: &Status) -> StepFailure {
    StepFailure {
        superseded: status.code() == Code::Aborted,
        ..failure("VolumeError", status.message())
    }
}

/// Declares the pod's volumes.
pub async fn apply(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    let manifest = require_manifest(context)?;
    let request = ApplyPodRequest {
        r#ref: Some(context.pod.clone()),
        sequence: context.sequence,
        manifest: manifest.raw().clone(),
        client_id: client_id(&manager.ctx, context.client_epoch),
        cause: Some(polylet_kit::cause::from_current_span()),
    };
    let response = manager.volumes.clone().apply_pod(request).await;
    let response = response.map_err(|status| volume_failure(&status))?;
    let state = response.into_inner().state;
    Ok(StepOutcome::VolumesDeclared {
        digest: manifest.digest().to_owned(),
        sequence: state.as_ref().map_or(context.sequence, |s| s.sequence),
        volumes: state
            .as_ref()
            .map(convert::observed_volumes)
            .unwrap_or_default(),
    })
}

/// Releases the pod's volumes: its containers are gone for good.
pub async fn release(
    manager: &Rc<RuntimeManager>,
    context: &StepContext,
) -> Result<StepOutcome, StepFailure> {
    let request = ReleasePodRequest {
        r#ref: Some(context.pod.clone()),
        sequence: context.sequence,
        client_id: client_id(&manager.ctx, context.client_epoch),
        cause: Some(polylet_kit::cause::from_current_span()),
    };
    match manager.volumes.clone().release_pod(request).await {
        Ok(response) => {
            let state = response.into_inner().state.unwrap_or_default();
            let gone = convert::observed_volumes(&state).iter().all(|v| v.gone);
            Ok(StepOutcome::VolumesReleased { gone })
        }
        // volume-manager does not know the pod: nothing of it is mounted.
        Err(status) if status.code() == Code::NotFound => {
            Ok(StepOutcome::VolumesReleased { gone: true })
        }
        Err(status) => Err(volume_failure(&status)),
    }
}
