//! Service account tokens, bound to the pods that hold them.

use jiff::Timestamp;
use polylet_model::PodUid;

use super::blocked::Blocked;
use super::bytes::Bytes;

/// Identifies one token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTokenKey {
    /// The uid of the pod.
    pub uid: PodUid,
    /// The namespace of the pod and the service account.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The name of the service account.
    pub service_account: String,
    /// The audience; empty for the API server.
    pub audience: String,
    /// The requested lifetime in seconds.
    pub expiration_seconds: i64,
}

impl PodTokenKey {
    /// Comes before all tokens of a pod, and after those of pods before it.
    pub(super) fn first_of(uid: &PodUid) -> Self {
        PodTokenKey {
            uid: uid.clone(),
            namespace: String::new(),
            pod: String::new(),
            service_account: String::new(),
            audience: String::new(),
            expiration_seconds: i64::MIN,
        }
    }
}

/// An issued token; `Debug` does not show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedToken {
    /// The token.
    pub token: Bytes,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// The last token issued, and the last error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenState {
    issued: Option<IssuedToken>,
    last_error: Option<String>,
}

impl TokenState {
    /// The token, or why there is none.
    pub fn issued(&self) -> Result<IssuedToken, Blocked> {
        match (&self.issued, &self.last_error) {
            (Some(issued), _) => Ok(issued.clone()),
            (None, Some(error)) => Err(Blocked::Failed(format!("failed to fetch token: {error}"))),
            (None, None) => Err(Blocked::Imminent("waiting for a token".to_owned())),
        }
    }

    /// Applies the result of a token request; returns whether anything has changed. A failure
    /// leaves the present token until it expires.
    pub fn update(&mut self, result: Result<IssuedToken, String>, now: Timestamp) -> bool {
        let before = self.clone();
        match result {
            Ok(issued) => {
                *self = TokenState {
                    issued: Some(issued),
                    last_error: None,
                };
            }
            Err(error) => {
                self.last_error = Some(error);
                self.issued.take_if(|issued| issued.expires_at <= now);
            }
        }
        *self != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn keeps_the_old_token_until_it_expires() {
        let mut token = TokenState::default();
        assert!(matches!(token.issued(), Err(Blocked::Imminent(_))));
        assert!(token.update(Err("no".into()), at(0)));
        assert_eq!(
            token.issued(),
            Err(Blocked::Failed("failed to fetch token: no".into()))
        );
        let issued = IssuedToken {
            token: b"t0k3n".to_vec().into(),
            expires_at: at(100),
        };
        token.update(Ok(issued.clone()), at(1));
        token.update(Err("unavailable".into()), at(99));
        assert_eq!(token.issued(), Ok(issued.clone()));
        token.update(Err("unavailable".into()), at(100));
        assert!(token.issued().is_err());
        token.update(Ok(issued.clone()), at(101));
        assert_eq!(token.issued(), Ok(issued));
        assert!(!format!("{token:?}").contains("t0k3n"), "{token:?}");
    }
}
