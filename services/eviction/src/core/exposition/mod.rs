//! Metrics of the node, its pods and containers, as text.

pub(crate) mod cadvisor;
mod devices;
mod families;
pub(crate) mod machine;
pub(crate) mod measured;
pub(crate) mod resource;

#[cfg(test)]
mod tests;
