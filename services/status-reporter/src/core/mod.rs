//! Facts in, statuses and requests out. Pure.

pub(crate) mod certificates;
mod compute;
pub(crate) mod events;
pub(crate) mod fact_store;
pub(crate) mod facts;
pub(crate) mod host_ip_family;
pub(crate) mod mirror;
pub(crate) mod node;
pub(crate) mod normal_form;
pub(crate) mod pod_start;
mod previous_status;
pub(crate) mod published;
pub(crate) mod report;
pub(crate) mod shared_status;
pub(crate) mod status_manager;
pub(crate) mod terminations;
