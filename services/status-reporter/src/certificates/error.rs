//! Why a certificate could not be obtained or stored.

use polylet_api::ApiErrorKind;
use polylet_api::retry::RequestError;

use super::csr::CsrError;
use super::kubeconfig::KubeconfigWriteError;
use super::store::StoreError;

/// A failed step of a certificate manager.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("requesting a certificate")]
    Csr(#[from] CsrError),
    #[error("storing a certificate")]
    Store(#[from] StoreError),
    #[error("creating the kubeconfig")]
    Kubeconfig(#[from] KubeconfigWriteError),
    #[error("the kubeconfig embeds a certificate without its key")]
    NoEmbeddedKey,
}

impl RequestError for CertificateError {
    fn kind(&self) -> Option<ApiErrorKind> {
        match self {
            CertificateError::Csr(error) => error.kind(),
            _ => None,
        }
    }
}
