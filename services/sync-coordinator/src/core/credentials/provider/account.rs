//! What a plugin is told of a pod's service account, and for whom its answer holds.

use std::collections::BTreeMap;
use std::fmt;

use super::super::AccountRef;
use super::super::verify::sha256;
use super::{Answer, AnswerError, ServiceAccount};

/// A pod's service account, as a plugin is told of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// Which.
    pub of: AccountRef,
    /// Those of its annotations that the plugin wants.
    pub annotations: BTreeMap<String, String>,
    /// A token of it, bound to the pod. Never printed.
    pub token: String,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Account({}/{})", self.of.namespace, self.of.name)
    }
}

/// For whom an answer holds: pods of one account that looks the same, and may be with one token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Whose {
    of: AccountRef,
    annotations: BTreeMap<String, String>,
    token: Option<String>,
}

impl ServiceAccount {
    /// The annotations that the plugin is told; none at all, and no question, where one that it
    /// requires is missing.
    pub fn annotations(
        &self,
        found: &BTreeMap<String, String>,
    ) -> Option<BTreeMap<String, String>> {
        let entry = |key: &String| Some((key.clone(), found.get(key)?.clone()));
        let required: Option<BTreeMap<_, _>> =
            self.required_annotations.iter().map(entry).collect();
        let optional = self.optional_annotations.iter().filter_map(entry);
        Some(required?.into_iter().chain(optional).collect())
    }

    /// For whom an answer holds.
    pub fn whose(&self, account: &Account) -> Whose {
        Whose {
            token: self.by_token.then(|| sha256(&account.token)),
            ..Self::asked_by(account)
        }
    }

    /// Who may share a question: only those with the same token.
    pub fn asked_by(account: &Account) -> Whose {
        Whose {
            of: account.of.clone(),
            annotations: account.annotations.clone(),
            token: Some(sha256(&account.token)),
        }
    }

    /// A token for a password is no answer that may outlive it.
    ///
    /// # Errors
    /// When the plugin gives the token back as a password, and its answers hold for the account.
    pub fn check(&self, answer: &Answer, account: &Account) -> Result<(), AnswerError> {
        let mut logins = answer.logins.values();
        if !self.by_token && logins.any(|login| login.password == account.token) {
            return Err(AnswerError::Echo);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Login;
    use super::super::CacheKeyType;
    use super::*;

    fn wanted(by_token: bool) -> ServiceAccount {
        ServiceAccount {
            required: true,
            audience: "reg".into(),
            by_token,
            required_annotations: vec!["a".into()],
            optional_annotations: vec!["b".into()],
        }
    }

    fn strings(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        of.iter().map(owned).collect()
    }

    fn account(uid: &str, annotation: &str, token: &str) -> Account {
        Account {
            of: AccountRef {
                namespace: "ns".into(),
                name: "sa".into(),
                uid: uid.into(),
            },
            annotations: strings(&[("a", annotation)]),
            token: token.into(),
        }
    }

    #[test]
    fn annotations_are_told_as_they_are_wanted() {
        for (found, told) in [
            (strings(&[]), None),
            (strings(&[("b", "2")]), None),
            (
                strings(&[("a", "1"), ("c", "3")]),
                Some(strings(&[("a", "1")])),
            ),
            (
                strings(&[("a", "1"), ("b", "2")]),
                Some(strings(&[("a", "1"), ("b", "2")])),
            ),
        ] {
            assert_eq!(wanted(true).annotations(&found), told);
        }
    }

    #[test]
    fn for_whom_an_answer_holds() {
        let mine = account("u", "1", "t");
        for (other, of_account, of_token) in [
            (account("u", "1", "t"), true, true),
            (account("u", "1", "new"), true, false),
            (account("u", "2", "t"), false, false),
            (account("another", "1", "t"), false, false),
        ] {
            for (by_token, same) in [(false, of_account), (true, of_token)] {
                let wanted = wanted(by_token);
                assert_eq!(
                    wanted.whose(&mine) == wanted.whose(&other),
                    same,
                    "{other:?}"
                );
            }
            let together = ServiceAccount::asked_by(&mine) == ServiceAccount::asked_by(&other);
            assert_eq!(together, of_token);
        }
        let told = format!(
            "{:?} {:?}",
            account("u", "1", "hunter2"),
            wanted(true).whose(&account("u", "1", "hunter2"))
        );
        assert!(!told.contains("hunter2"), "{told}");
    }

    #[test]
    fn a_token_is_a_password_only_as_long_as_it_lives() {
        let login = Login {
            password: "t".into(),
            ..Login::default()
        };
        let answer = Answer {
            reach: CacheKeyType::Image,
            cache: None,
            logins: [("r.example".to_owned(), login)].into(),
        };
        let mine = account("u", "1", "t");
        assert_eq!(wanted(true).check(&answer, &mine), Ok(()));
        assert_eq!(wanted(false).check(&answer, &mine), Err(AnswerError::Echo));
        let other = account("u", "1", "other");
        assert_eq!(wanted(false).check(&answer, &other), Ok(()));
    }
}
