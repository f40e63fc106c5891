//! The settings of image-gc in the configuration.

use polylet_kit::Ctx;

use crate::core::plan::ImageGcPolicy;

/// The settings.
pub(crate) struct Config {
    pub(crate) policy: ImageGcPolicy,
    pub(crate) runtime_endpoint: String,
}

impl Config {
    pub(crate) fn new(ctx: &Ctx) -> Self {
        let kubelet = &ctx.config().kubelet;
        let percent = |value: i32| u8::try_from(value.clamp(0, 100)).unwrap_or(100);
        Config {
            policy: ImageGcPolicy {
                high_threshold_percent: percent(kubelet.image_gc_high_threshold_percent),
                low_threshold_percent: percent(kubelet.image_gc_low_threshold_percent),
                minimum_age: kubelet.image_minimum_gc_age,
                maximum_age: kubelet.image_maximum_gc_age,
            },
            runtime_endpoint: kubelet.image_endpoint().to_owned(),
        }
    }
}
