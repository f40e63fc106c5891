//! Declarations to volume-manager.

use std::rc::Rc;

use polylet_kit::Ctx;
use polylet_wire::volume::v1::{ApplyPodRequest, ReleasePodRequest};
use tonic::{Code, Status};

use super::{Hands, Job, manifest, said};
use crate::convert;
use crate::core::learn::{Outcome, Trouble};

/// The name to declare under, of the several that a life of this process may go through.
pub fn declarer(ctx: &Ctx, name: u32) -> String {
    format!("{}-{name}", ctx.incarnation())
}

/// What volume-manager said instead of taking a declaration.
pub fn refused(status: &Status) -> Trouble {
    Trouble {
        followed: status.code() == Code::Aborted,
        ..said("VolumeError", status.message())
    }
}

/// Declares what the pod needs.
pub async fn apply(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let manifest = manifest(job)?;
    let request = ApplyPodRequest {
        r#ref: Some(job.pod.clone()),
        sequence: job.sequence,
        manifest: manifest.raw().clone(),
        declarer: declarer(&hands.ctx, job.declarer),
        cause: Some(polylet_kit::cause::of_current_span()),
    };
    let answer = hands.volumes.clone().apply_pod(request).await;
    let state = answer
        .map_err(|status| refused(&status))?
        .into_inner()
        .state;
    Ok(Outcome::Declared {
        digest: manifest.digest().to_owned(),
        sequence: state.as_ref().map_or(job.sequence, |s| s.sequence),
        seen: state.as_ref().map(convert::volumes).unwrap_or_default(),
    })
}

/// Declares that the pod's containers are gone for good.
pub async fn release(hands: &Rc<Hands>, job: &Job) -> Result<Outcome, Trouble> {
    let request = ReleasePodRequest {
        r#ref: Some(job.pod.clone()),
        sequence: job.sequence,
        declarer: declarer(&hands.ctx, job.declarer),
        cause: Some(polylet_kit::cause::of_current_span()),
    };
    match hands.volumes.clone().release_pod(request).await {
        Ok(answer) => {
            let state = answer.into_inner().state.unwrap_or_default();
            let gone = convert::volumes(&state).iter().all(|v| v.gone);
            Ok(Outcome::Released { gone })
        }
        // Nothing of it is known there: nothing of it is left.
        Err(status) if status.code() == Code::NotFound => Ok(Outcome::Released { gone: true }),
        Err(status) => Err(refused(&status)),
    }
}
