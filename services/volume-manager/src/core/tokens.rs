//! Tokens of service accounts, bound to the pods that hold them.

use jiff::Timestamp;

use super::objects::Bytes;
use super::payload::Blocked;

/// Names one token.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenKey {
    /// The pod's uid.
    pub uid: String,
    /// Its namespace, and the service account's.
    pub namespace: String,
    /// Its name.
    pub pod: String,
    /// The service account.
    pub service_account: String,
    /// Whom the token is for; empty for the API server.
    pub audience: String,
    /// How long it is wanted to live, in seconds.
    pub expiration_seconds: i64,
}

/// A token. Not shown in any output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// It.
    pub token: Bytes,
    /// When it is worth nothing any more.
    pub expires_at: Timestamp,
}

/// What is known of a token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Token {
    issued: Option<Issued>,
    trouble: Option<String>,
}

impl Token {
    /// The token, or what it waits for.
    pub fn issued(&self) -> Result<Issued, Blocked> {
        match (&self.issued, &self.trouble) {
            (Some(issued), _) => Ok(issued.clone()),
            (None, Some(why)) => Err(Blocked::Failed(format!("failed to fetch token: {why}"))),
            (None, None) => Err(Blocked::Coming("waiting for a token".to_owned())),
        }
    }

    /// A new one was asked for: one that cannot be had leaves the old one while that is valid.
    /// Says whether anything is different now.
    pub fn learn(&mut self, answer: Result<Issued, String>, now: Timestamp) -> bool {
        let before = self.clone();
        match answer {
            Ok(issued) => {
                *self = Token {
                    issued: Some(issued),
                    trouble: None,
                };
            }
            Err(why) => {
                self.trouble = Some(why);
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
    fn an_old_token_stays_while_it_is_valid() {
        let mut token = Token::default();
        assert!(matches!(token.issued(), Err(Blocked::Coming(_))));
        assert!(token.learn(Err("no".into()), at(0)));
        let said = token.issued();
        assert_eq!(
            said,
            Err(Blocked::Failed("failed to fetch token: no".into()))
        );
        let one = Issued {
            token: b"t0k3n".to_vec().into(),
            expires_at: at(100),
        };
        token.learn(Ok(one.clone()), at(1));
        token.learn(Err("away".into()), at(99));
        assert_eq!(token.issued(), Ok(one.clone()));
        token.learn(Err("away".into()), at(100));
        assert!(token.issued().is_err());
        token.learn(Ok(one.clone()), at(101));
        assert_eq!(token.issued(), Ok(one));
        assert!(!format!("{token:?}").contains("t0k3n"), "{token:?}");
    }
}
