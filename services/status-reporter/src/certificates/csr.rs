//! One certificate signing request, from a key to a certificate.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use polylet_api::kube::Api;
use polylet_api::kube::api::{PostParams, WatchParams};
use polylet_api::{ApiConnection, ApiErrorKind};
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, timeout_at};

use crate::node::{CallError, with_deadline};

/// How long to wait for a signature before a new request, as upstream does.
const SIGNATURE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

const DENIED: &str = "denied";

/// The content of a signing request.
pub(super) struct CsrSpec {
    /// `system:node:<name>`.
    pub(super) user: String,
    /// Names and addresses of a serving certificate.
    pub(super) names: Vec<String>,
    pub(super) signer: &'static str,
    /// `client auth` or `server auth`.
    pub(super) usage: &'static str,
    /// Prefix of the object's name.
    pub(super) prefix: &'static str,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum CsrError {
    #[error("building the signing request")]
    Build(#[source] rcgen::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("signing request {name} was {outcome}: {reason}")]
    Rejected {
        name: String,
        outcome: &'static str,
        reason: String,
    },
    #[error("signing request {name} was not signed within 15 minutes; it may need approval")]
    Timeout { name: String },
    #[error("signing request {name} was answered with an invalid certificate")]
    InvalidCertificate { name: String },
    #[error(
        "signing request {name} was answered with a certificate for {actual:?}, not {expected:?}"
    )]
    WrongUser {
        name: String,
        actual: String,
        expected: String,
    },
    #[error("signing request {name} was answered with a certificate for another key")]
    WrongKey { name: String },
}

impl CsrError {
    /// Whether the next request needs a new key, and so a new object. A pending one is found again, so
    /// that a late approval is used; a denied one stays until it is deleted, so that an unwanted node
    /// does not fill the cluster with requests.
    pub(super) fn is_final(&self) -> bool {
        !matches!(
            self,
            CsrError::Call(_)
                | CsrError::Timeout { .. }
                | CsrError::Rejected {
                    outcome: DENIED,
                    ..
                }
        )
    }

    pub(super) fn kind(&self) -> Option<ApiErrorKind> {
        match self {
            CsrError::Call(error) => Some(error.kind()),
            _ => None,
        }
    }
}

/// Creates a signing request and waits for the certificate. The same key and spec give the same object,
/// so that a restart resumes it.
pub(super) async fn request_certificate(
    connection: &ApiConnection,
    key: &KeyPair,
    spec: &CsrSpec,
) -> Result<String, CsrError> {
    let request = build(key, spec).map_err(CsrError::Build)?;
    let hash = digest(&SHA256, request_identity(key, spec).as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .take(20)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = format!("{}{hash}", spec.prefix);
    let requests: Api<CertificateSigningRequest> = Api::all(connection.ready().await);
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: spec.signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), spec.usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let parameters = PostParams::default();
    match with_deadline(
        "creating the signing request",
        requests.create(&parameters, &object),
    )
    .await
    {
        Ok(_) => tracing::info!(
            name,
            signer = spec.signer,
            "certificate signing request created"
        ),
        Err(error) if error.kind() == ApiErrorKind::AlreadyExists => {
            tracing::info!(name, "certificate signing request found; waiting for it");
        }
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + SIGNATURE_TIMEOUT;
    loop {
        let current = with_deadline("reading the signing request", requests.get(&name)).await?;
        if let Some(response) = response(&current, key, spec) {
            return response;
        }
        let version = current.metadata.resource_version.unwrap_or_default();
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let watch = with_deadline(
            "watching the signing request",
            requests.watch(&params, &version),
        )
        .await?;
        let mut watch = std::pin::pin!(watch);
        // Whatever changed, the object is read again.
        if timeout_at(until, watch.next()).await.is_err() {
            return Err(CsrError::Timeout { name });
        }
        // A watch that ends at once must not cause a busy loop.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What identifies a request.
fn request_identity(key: &KeyPair, spec: &CsrSpec) -> String {
    let mut names = spec.names.clone();
    names.sort();
    format!(
        "{}\n{}\n{}\n{}",
        key.public_key_pem(),
        spec.user,
        spec.signer,
        names.join(",")
    )
}

fn build(key: &KeyPair, spec: &CsrSpec) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(spec.names.clone())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, spec.user.as_str());
    params.serialize_request(key)?.pem()
}

fn response(
    request: &CertificateSigningRequest,
    key: &KeyPair,
    spec: &CsrSpec,
) -> Option<Result<String, CsrError>> {
    let name = request.metadata.name.clone().unwrap_or_default();
    let status = request.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        let outcome = match condition.type_.as_str() {
            "Denied" => DENIED,
            "Failed" => "not signed",
            _ => continue,
        };
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let reason = format!("{} {}", text(&condition.reason), text(&condition.message));
        let reason = reason.trim().to_owned();
        return Some(Err(CsrError::Rejected {
            name,
            outcome,
            reason,
        }));
    }
    let ByteString(bytes) = status.certificate.as_ref()?;
    Some(verified(&name, bytes, key, spec))
}

/// The certificate, if it is for this key and this user: with another one the node would have no
/// credentials, or those of another node.
fn verified(name: &str, pem: &[u8], key: &KeyPair, spec: &CsrSpec) -> Result<String, CsrError> {
    let name = name.to_owned();
    let text = String::from_utf8(pem.to_vec()).ok();
    let (Some(text), Some(subject)) = (text, super::store::subject(pem)) else {
        return Err(CsrError::InvalidCertificate { name });
    };
    if subject.name != spec.user {
        let (actual, expected) = (subject.name, spec.user.clone());
        return Err(CsrError::WrongUser {
            name,
            actual,
            expected,
        });
    }
    if subject.key != key.subject_public_key_info() {
        return Err(CsrError::WrongKey { name });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_must_be_for_this_key_and_user() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let spec = CsrSpec {
            user: "system:node:a".to_owned(),
            names: Vec::new(),
            signer: "",
            usage: "client auth",
            prefix: "",
        };
        let signed = |user: &str, key: &KeyPair| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, user);
            params.self_signed(key).unwrap().pem()
        };
        let verify = |pem: &str| verified("csr", pem.as_bytes(), &key, &spec).map(drop);
        assert!(verify(&signed("system:node:a", &key)).is_ok());
        let wrong_user = verify(&signed("system:node:b", &key)).unwrap_err();
        let message = "signing request csr was answered with a certificate for \"system:node:b\", \
                       not \"system:node:a\"";
        assert_eq!(wrong_user.to_string(), message);
        let other = verify(&signed("system:node:a", &other)).unwrap_err();
        assert!(matches!(other, CsrError::WrongKey { .. }), "{other}");
        let invalid = verify("nonsense").unwrap_err();
        assert!(matches!(invalid, CsrError::InvalidCertificate { .. }));
        assert!(wrong_user.is_final() && other.is_final() && invalid.is_final());
        let pending = CsrError::Timeout {
            name: String::new(),
        };
        assert!(!pending.is_final(), "a late approval is used");
        let rejected = |outcome| CsrError::Rejected {
            name: String::new(),
            outcome,
            reason: String::new(),
        };
        assert!(!rejected(DENIED).is_final() && rejected("not signed").is_final());
    }
}
