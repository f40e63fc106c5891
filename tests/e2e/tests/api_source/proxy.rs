//! A wire between the service and the API server that can be cut without either end being told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards to a port of the loopback address.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// Connections up to this number carry nothing any more.
    cut: watch::Sender<u64>,
    taken: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let (cut, taken) = (watch::Sender::new(0), Arc::<AtomicU64>::default());
        let (cuts, count) = (cut.clone(), taken.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst) + 1;
                let cut = cuts.subscribe();
                tokio::spawn(async move {
                    if let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await {
                        carry(client, server, number, cut).await;
                    }
                });
            }
        });
        Proxy {
            port: own,
            cut,
            taken,
        }
    }

    /// All connections of now go silent; new ones work.
    pub(crate) fn cut(&self) {
        self.cut.send_replace(self.taken.load(Ordering::SeqCst));
    }

    /// How many connections there have been.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::SeqCst)
    }
}

async fn carry(
    mut client: TcpStream,
    mut server: TcpStream,
    number: u64,
    mut cut: watch::Receiver<u64>,
) {
    let (mut from, mut to) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let done = tokio::select! {
            () = silent(&mut cut, number) => {
                // Both ends stay open, and hear nothing.
                tokio::time::sleep(std::time::Duration::from_secs(600)).await;
                return;
            }
            read = client.read(&mut from) => match read {
                Ok(n) if n > 0 => server.write_all(&from[..n]).await.is_err(),
                _ => true,
            },
            read = server.read(&mut to) => match read {
                Ok(n) if n > 0 => client.write_all(&to[..n]).await.is_err(),
                _ => true,
            },
        };
        if done {
            return;
        }
    }
}

async fn silent(cut: &mut watch::Receiver<u64>, number: u64) {
    let _ = cut.wait_for(|cut| *cut >= number).await;
}
