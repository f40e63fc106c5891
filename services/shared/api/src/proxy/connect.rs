//! CONNECT: what a proxy of HTTP is asked for.

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::address::User;

/// The head of an answer is not longer.
const MOST_BYTES: usize = 16 << 10;

/// Why there is no tunnel.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the connection broke")]
    Broke(#[from] std::io::Error),
    #[error("it answered {0}")]
    Refused(StatusCode),
    #[error("what it answered is not HTTP")]
    Answer,
}

/// Asks for a tunnel to the server. What comes after it is the server's.
pub(super) async fn ask<T>(
    stream: &mut T,
    server: &str,
    user: Option<&User>,
) -> Result<(), ConnectError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n");
    if let Some(user) = user {
        head += &format!("Proxy-Authorization: {}\r\n", user.basic());
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    match status(&answer(stream).await?).ok_or(ConnectError::Answer)? {
        StatusCode::OK => Ok(()),
        other => Err(ConnectError::Refused(other)),
    }
}

/// The head of the answer, and no byte beyond it: it is read byte by byte, once in a connection's life.
async fn answer<T: AsyncRead + Unpin>(stream: &mut T) -> Result<Vec<u8>, ConnectError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        head.push(stream.read_u8().await?);
        if head.len() > MOST_BYTES {
            return Err(ConnectError::Answer);
        }
    }
    Ok(head)
}

/// The number of a status line.
fn status(head: &[u8]) -> Option<StatusCode> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    let version = words.next()?;
    let number = words.next()?;
    let known = version.starts_with("HTTP/1.");
    known.then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn told(answer: &'static [u8]) -> (Result<(), ConnectError>, String, Vec<u8>) {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        far.write_all(answer).await.unwrap();
        let user = User {
            name: "a".to_owned(),
            password: "b".to_owned(),
        };
        let mut asked = vec![0; 1024];
        let ended = async {
            let told = ask(&mut near, "h:6443", Some(&user)).await;
            let length = far.read(&mut asked).await.unwrap();
            asked.truncate(length);
            drop(far);
            let mut rest = Vec::new();
            near.read_to_end(&mut rest).await.unwrap();
            (told, rest)
        };
        let (told, rest) = ended.await;
        (told, String::from_utf8(asked).unwrap(), rest)
    }

    #[tokio::test]
    async fn a_tunnel_is_asked_for_and_what_follows_is_the_servers() {
        let (told, asked, rest) =
            told(b"HTTP/1.0 200 Connection established\r\nVia: x\r\n\r\nhello").await;
        assert!(told.is_ok());
        assert_eq!(rest, b"hello");
        assert_eq!(
            asked,
            "CONNECT h:6443 HTTP/1.1\r\nHost: h:6443\r\nProxy-Authorization: Basic YTpi\r\n\r\n"
        );
    }

    #[tokio::test]
    async fn a_refusal_is_told_by_its_number() {
        let (refused, ..) = told(b"HTTP/1.1 407 hunter2\r\nA: b\r\n\r\n").await;
        let said = refused.unwrap_err().to_string();
        assert_eq!(said, "it answered 407 Proxy Authentication Required");
        for answer in [
            &b"SSH-2.0-x\r\n\r\n"[..],
            b"HTTP/1.1 2000 OK\r\n\r\n",
            b"\n\n",
            b"\r\n\r\n",
        ] {
            let (refused, ..) = told(answer).await;
            assert!(matches!(refused, Err(ConnectError::Answer)), "{refused:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_without_an_end_is_none() {
        let (mut near, mut far) = tokio::io::duplex(1 << 16);
        let writing = async move { while far.write_all(&[b'x'; 1000]).await.is_ok() {} };
        let asking = async move {
            let told = ask(&mut near, "h:1", None).await;
            drop(near);
            told
        };
        let (told, ()) = tokio::join!(asking, writing);
        assert!(matches!(told, Err(ConnectError::Answer)));
        let (mut near, far) = tokio::io::duplex(64);
        drop(far);
        let told = ask(&mut near, "h:1", None).await;
        assert!(matches!(told, Err(ConnectError::Broke(_))));
    }
}
