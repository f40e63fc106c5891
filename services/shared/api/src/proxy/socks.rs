//! What a proxy of SOCKS 5 is asked for (RFC 1928; users by RFC 1929).

use std::net::IpAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::address::User;

const VERSION: u8 = 5;
const NO_USER: u8 = 0;
const BY_PASSWORD: u8 = 2;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocksError {
    #[error("the connection broke")]
    Broke(#[from] std::io::Error),
    #[error("names, users and passwords have up to 255 bytes")]
    Long,
    #[error("it wants another kind of authentication")]
    Method,
    #[error("it does not take the user and the password")]
    User,
    #[error("it refused: {0}")]
    Refused(&'static str),
    #[error("what it answered is not SOCKS 5")]
    Answer,
}

/// Asks for a tunnel. A host that is a name is resolved by the proxy.
pub(super) async fn ask<T>(
    stream: &mut T,
    host: &str,
    port: u16,
    user: Option<&User>,
) -> Result<(), SocksError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let hello: &[u8] = match user {
        Some(_) => &[VERSION, 2, NO_USER, BY_PASSWORD],
        None => &[VERSION, 1, NO_USER],
    };
    stream.write_all(hello).await?;
    stream.flush().await?;
    match (answer(stream).await?, user) {
        ([VERSION, NO_USER], _) => {}
        ([VERSION, BY_PASSWORD], Some(user)) => introduce(stream, user).await?,
        ([VERSION, _], _) => return Err(SocksError::Method),
        _ => return Err(SocksError::Answer),
    }
    let mut request = vec![VERSION, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(four)) => {
            request.push(1);
            request.extend(four.octets());
        }
        Ok(IpAddr::V6(six)) => {
            request.push(4);
            request.extend(six.octets());
        }
        Err(_) => {
            request.push(3);
            request.extend(counted(host)?);
        }
    }
    request.extend(port.to_be_bytes());
    stream.write_all(&request).await?;
    stream.flush().await?;
    let [version, said, _, kind] = answer(stream).await?;
    if version != VERSION {
        return Err(SocksError::Answer);
    }
    if said != 0 {
        return Err(SocksError::Refused(in_words(said)));
    }
    // The proxy's own end of it, which nobody needs.
    let length = match kind {
        1 => 4,
        3 => usize::from(stream.read_u8().await?),
        4 => 16,
        _ => return Err(SocksError::Answer),
    };
    let mut rest = vec![0; length + 2];
    stream.read_exact(&mut rest).await?;
    Ok(())
}

async fn introduce<T>(stream: &mut T, user: &User) -> Result<(), SocksError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut said = vec![1];
    said.extend(counted(&user.name)?);
    said.extend(counted(&user.password)?);
    stream.write_all(&said).await?;
    stream.flush().await?;
    match answer(stream).await? {
        [1, 0] => Ok(()),
        [1, _] => Err(SocksError::User),
        _ => Err(SocksError::Answer),
    }
}

async fn answer<T: AsyncRead + Unpin, const N: usize>(stream: &mut T) -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A text behind its length.
fn counted(text: &str) -> Result<Vec<u8>, SocksError> {
    let length = u8::try_from(text.len()).map_err(|_| SocksError::Long)?;
    Ok([&[length], text.as_bytes()].concat())
}

fn in_words(said: u8) -> &'static str {
    match said {
        1 => "general failure",
        2 => "not allowed by its rules",
        3 => "network unreachable",
        4 => "host unreachable",
        5 => "connection refused",
        6 => "TTL expired",
        7 => "it knows no CONNECT",
        8 => "it knows no such addresses",
        _ => "for a reason that is not known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(
        host: &str,
        user: bool,
        answers: &[u8],
    ) -> (Result<(), SocksError>, Vec<u8>, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 12);
        far.write_all(answers).await.unwrap();
        let user = user.then(|| User {
            name: "me".to_owned(),
            password: "pw".to_owned(),
        });
        let told = ask(&mut near, host, 6443, user.as_ref()).await;
        let mut said = vec![0; 1 << 10];
        let length = far.read(&mut said).await.unwrap();
        said.truncate(length);
        drop(far);
        let mut rest = Vec::new();
        near.read_to_end(&mut rest).await.unwrap();
        (told, said, rest)
    }

    #[tokio::test]
    async fn names_addresses_and_users_are_told() {
        let good = [5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 80, b'!'];
        let (told_, said, rest) = told("a.b", false, &good).await;
        assert!(told_.is_ok());
        let request = [&[5, 1, 0][..], &[5, 1, 0, 3, 3], b"a.b", &[25, 43]].concat();
        assert_eq!((said, rest), (request, b"!".to_vec()));
        let (told_, said, _) = told("10.0.0.1", false, &good).await;
        assert!(told_.is_ok());
        assert_eq!(said.get(3..), Some(&[5, 1, 0, 1, 10, 0, 0, 1, 25, 43][..]));
        let by_name = [5, 2, 1, 0, 5, 0, 0, 3, 1, b'x', 0, 80, b'!'];
        let (told_, said, rest) = told("::1", true, &by_name).await;
        assert!(told_.is_ok());
        assert_eq!(rest, b"!");
        let user = [&[5, 2, 0, 2, 1, 2][..], b"me", &[2], b"pw", &[5, 1, 0, 4]].concat();
        assert_eq!(said.get(..user.len()), Some(&user[..]));
    }

    #[tokio::test]
    async fn refusals_are_told() {
        for (answers, expected) in [
            (&[5, 255][..], "it wants another kind of authentication"),
            (&[5, 2, 1, 1], "it does not take the user and the password"),
            (&[5, 0, 5, 5, 0, 1], "it refused: connection refused"),
            (&[5, 0, 5, 0, 0, 9], "what it answered is not SOCKS 5"),
            (b"HTTP/1.1 400", "what it answered is not SOCKS 5"),
        ] {
            let (refused, ..) = told("h", true, answers).await;
            assert_eq!(refused.unwrap_err().to_string(), expected);
        }
        let (refused, ..) = told(&"x".repeat(256), false, &[5, 0]).await;
        assert!(matches!(refused, Err(SocksError::Long)));
        let (refused, ..) = told("h", false, &[5, 2]).await;
        assert!(matches!(refused, Err(SocksError::Method)));
    }
}
