//! The state of a pod condition.

/// A condition without its type and times.
pub(super) struct PodConditionState {
    pub(super) is_true: bool,
    pub(super) reason: Option<&'static str>,
    pub(super) message: Option<String>,
}

impl PodConditionState {
    pub(super) const TRUE: Self = Self {
        is_true: true,
        reason: None,
        message: None,
    };

    pub(super) fn false_because(reason: &'static str, message: Option<String>) -> Self {
        Self {
            is_true: false,
            reason: Some(reason),
            message,
        }
    }
}
