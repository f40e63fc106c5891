use polylet_harness::HarnessError;

/// What happens beside the raw calls of pod `n`, and is counted to its times.
pub(crate) trait PodHooks {
    async fn before_start(&self, n: usize) -> Result<(), HarnessError>;
    async fn after_start(&self, n: usize) -> Result<(), HarnessError>;
    async fn before_stop(&self, n: usize) -> Result<(), HarnessError>;
    async fn after_stop(&self, n: usize) -> Result<(), HarnessError>;
}

/// Raw calls alone.
pub(crate) struct NoHooks;

impl PodHooks for NoHooks {
    async fn before_start(&self, _: usize) -> Result<(), HarnessError> {
        Ok(())
    }

    async fn after_start(&self, _: usize) -> Result<(), HarnessError> {
        Ok(())
    }

    async fn before_stop(&self, _: usize) -> Result<(), HarnessError> {
        Ok(())
    }

    async fn after_stop(&self, _: usize) -> Result<(), HarnessError> {
        Ok(())
    }
}
