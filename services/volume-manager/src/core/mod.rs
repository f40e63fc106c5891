//! Decisions about pods' files: what a manifest asks for, what each volume holds, who may declare,
//! and the plan between what is wanted and what is there.

pub mod certificates;
pub mod claims;
pub mod csi;
pub mod declare;
pub mod downward;
pub mod facts;
pub mod growth;
pub mod layout;
pub mod limits;
pub mod manifest;
pub mod mounts;
pub mod objects;
pub mod payload;
mod pem;
pub mod place;
mod plain;
pub mod plan;
mod projected;
pub mod spec;
pub mod state;
pub mod sub_path;
pub mod telling;
pub mod tokens;
pub mod trust;
mod usage;
pub mod view;

#[cfg(test)]
mod claims_tests;
#[cfg(test)]
mod csi_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod spec_tests;
#[cfg(test)]
mod state_tests;
