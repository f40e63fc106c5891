//! Deliberate bugs, which the invariants have to find.

/// A bug that a service could have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A restarted coordinator does not read its checkpoints.
    CheckpointsLost,
    /// A restarted coordinator does not read its pending sandbox creations.
    SandboxIntentsLost,
    /// A stream counts as synced before its snapshot has been received.
    PrematureSync,
    /// A restarted prober does not read its results. Harmless: published results stay.
    ProbeResultsLost,
    /// image-gc ignores the images in use.
    ImageUseIgnored,
    /// Volumes are released when the stop of containers starts instead of after it.
    VolumesReleasedEarly,
    /// Requests for devices name no other active pods, so that those of running pods are given away.
    ActivePodsForgotten,
}
