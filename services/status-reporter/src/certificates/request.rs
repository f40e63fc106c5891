//! One signing request, from a key to a certificate.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use polylet_api::kube::Api;
use polylet_api::kube::api::{PostParams, WatchParams};
use polylet_api::{Connection, Refusal};
use rcgen::{CertificateParams, DnType, KeyPair, PublicKeyData};
use ring::digest::{SHA256, digest};
use tokio::time::{Instant, timeout_at};

use crate::node::{CallError, within};

/// As long as upstream waits for a signature; a new request is made then.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

const DENIED: &str = "denied";

/// What is asked for.
pub(super) struct Wish {
    /// `system:node:<name>`.
    pub(super) user: String,
    /// Names and addresses, for serving.
    pub(super) names: Vec<String>,
    pub(super) signer: &'static str,
    /// `client auth` or `server auth`.
    pub(super) usage: &'static str,
    /// What the request's name begins with.
    pub(super) prefix: &'static str,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error("making the signing request")]
    Make(#[source] rcgen::Error),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the signing request {name} was {what}: {why}")]
    Refused {
        name: String,
        what: &'static str,
        why: String,
    },
    #[error("the signing request {name} was not signed within 15 minutes: is it approved?")]
    Silent { name: String },
    #[error("the signing request {name} got a certificate that cannot be read")]
    Nonsense { name: String },
    #[error("the signing request {name} got a certificate of {got:?}; {wanted:?} was expected")]
    Stranger {
        name: String,
        got: String,
        wanted: String,
    },
    #[error("the signing request {name} got a certificate for another key")]
    OtherKey { name: String },
}

impl RequestError {
    /// Whether the next request has to be another one. One that waits for people is found again, so
    /// that a late approval counts; one that was denied stands until it is deleted, so that a node
    /// that is not wanted does not fill the cluster with requests.
    pub(super) fn is_final(&self) -> bool {
        !matches!(
            self,
            RequestError::Call(_)
                | RequestError::Silent { .. }
                | RequestError::Refused { what: DENIED, .. }
        )
    }

    pub(super) fn refusal(&self) -> Option<Refusal> {
        match self {
            RequestError::Call(error) => Some(error.refusal()),
            _ => None,
        }
    }
}

/// Asks, and waits for the certificate. The same key and wish make the same request, so that it is
/// not made twice.
pub(super) async fn certificate(
    connection: &Connection,
    key: &KeyPair,
    wish: &Wish,
) -> Result<String, RequestError> {
    let request = made(key, wish).map_err(RequestError::Make)?;
    let hash = digest(&SHA256, request_identity(key, wish).as_bytes());
    let hash: String = hash
        .as_ref()
        .iter()
        .take(20)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let name = format!("{}{hash}", wish.prefix);
    let requests: Api<CertificateSigningRequest> = Api::all(connection.ready().await);
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.into_bytes()),
            signer_name: wish.signer.to_owned(),
            usages: Some(vec!["digital signature".to_owned(), wish.usage.to_owned()]),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let parameters = PostParams::default();
    match within(
        "making the signing request",
        requests.create(&parameters, &object),
    )
    .await
    {
        Ok(_) => tracing::info!(name, signer = wish.signer, "asked for a certificate"),
        Err(error) if error.refusal() == Refusal::AlreadyExists => {
            tracing::info!(name, "a certificate was asked for already");
        }
        Err(error) => return Err(error.into()),
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let held = within("reading the signing request", requests.get(&name)).await?;
        if let Some(answer) = answered(&held, key, wish) {
            return answer;
        }
        let version = held.metadata.resource_version.unwrap_or_default();
        let one = WatchParams::default().fields(&format!("metadata.name={name}"));
        let watch = within(
            "following the signing request",
            requests.watch(&one, &version),
        )
        .await?;
        let mut watch = std::pin::pin!(watch);
        // Whatever the watch says, the next round reads it.
        if timeout_at(until, watch.next()).await.is_err() {
            return Err(RequestError::Silent { name });
        }
        // A watch that breaks at once must not make a storm.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What makes two requests the same.
fn request_identity(key: &KeyPair, wish: &Wish) -> String {
    let mut names = wish.names.clone();
    names.sort();
    format!(
        "{}\n{}\n{}\n{}",
        key.public_key_pem(),
        wish.user,
        wish.signer,
        names.join(",")
    )
}

fn made(key: &KeyPair, wish: &Wish) -> Result<String, rcgen::Error> {
    let mut params = CertificateParams::new(wish.names.clone())?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::OrganizationName, "system:nodes");
    params
        .distinguished_name
        .push(DnType::CommonName, wish.user.as_str());
    params.serialize_request(key)?.pem()
}

fn answered(
    request: &CertificateSigningRequest,
    key: &KeyPair,
    wish: &Wish,
) -> Option<Result<String, RequestError>> {
    let name = request.metadata.name.clone().unwrap_or_default();
    let status = request.status.as_ref()?;
    for condition in status.conditions.iter().flatten() {
        let what = match condition.type_.as_str() {
            "Denied" => DENIED,
            "Failed" => "not signed",
            _ => continue,
        };
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let why = format!("{} {}", part(&condition.reason), part(&condition.message));
        let why = why.trim().to_owned();
        return Some(Err(RequestError::Refused { name, what, why }));
    }
    let ByteString(bytes) = status.certificate.as_ref()?;
    Some(fitting(&name, bytes, key, wish))
}

/// The certificate, if it is of this key and this user: with another one the node would be nobody,
/// or somebody else.
fn fitting(name: &str, pem: &[u8], key: &KeyPair, wish: &Wish) -> Result<String, RequestError> {
    let name = name.to_owned();
    let text = String::from_utf8(pem.to_vec()).ok();
    let (Some(text), Some(owner)) = (text, super::store::owner(pem)) else {
        return Err(RequestError::Nonsense { name });
    };
    if owner.name != wish.user {
        let (got, wanted) = (owner.name, wish.user.clone());
        return Err(RequestError::Stranger { name, got, wanted });
    }
    if owner.key != key.subject_public_key_info() {
        return Err(RequestError::OtherKey { name });
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_certificate_of_this_key_and_user_is_taken() {
        let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let wish = Wish {
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
        let told = |pem: &str| fitting("csr", pem.as_bytes(), &key, &wish).map(drop);
        assert!(told(&signed("system:node:a", &key)).is_ok());
        let stranger = told(&signed("system:node:b", &key)).unwrap_err();
        let words = "the signing request csr got a certificate of \"system:node:b\"; \
                     \"system:node:a\" was expected";
        assert_eq!(stranger.to_string(), words);
        let other = told(&signed("system:node:a", &other)).unwrap_err();
        assert!(matches!(other, RequestError::OtherKey { .. }), "{other}");
        let nonsense = told("nonsense").unwrap_err();
        assert!(matches!(nonsense, RequestError::Nonsense { .. }));
        assert!(stranger.is_final() && other.is_final() && nonsense.is_final());
        let waits = RequestError::Silent {
            name: String::new(),
        };
        assert!(!waits.is_final(), "an approval that comes late counts");
        let refused = |what| RequestError::Refused {
            name: String::new(),
            what,
            why: String::new(),
        };
        assert!(!refused(DENIED).is_final() && refused("not signed").is_final());
    }
}
