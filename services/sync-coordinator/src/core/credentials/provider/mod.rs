//! Credential provider plugins: which there are, what they are asked, what they answer, how long
//! an answer is good.

pub mod account;
pub mod answer;
pub mod cache;
pub mod config;

pub use account::{Account, Whose};
pub use answer::{Answer, AnswerError, CacheKeyType, request};
pub use cache::Cache;
pub use config::{Provider, ProviderConfigError, ServiceAccount};
