//! Credential provider plugins: configuration, request and response, cache.

pub mod cache;
pub mod config;
pub mod response;
pub mod service_account;

pub use cache::CredentialCache;
pub use config::{CredentialProvider, ProviderConfigError, TokenAttributes};
pub use response::{CacheKeyType, ProviderResponse, ProviderResponseError, request};
pub use service_account::{IdentityScope, ServiceAccountToken};
