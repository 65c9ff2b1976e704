//! A way to a safekeeper on which every answer takes its time.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Listens on an address of its own, which it returns, and carries connections to `to`. What the safekeeper sends comes
/// out `delay` after it went in, in order; `delay` is asked for with each piece.
pub async fn answers(
    to: String,
    delay: impl Fn() -> Duration + Clone + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("listen");
    let address = listener.local_addr().expect("address").to_string();
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let (to, delay) = (to.clone(), delay.clone());
            tokio::spawn(async move {
                let _ = carry(near, &to, delay).await;
            });
        }
    });
    address
}

async fn carry(
    near: TcpStream,
    to: &str,
    delay: impl Fn() -> Duration + Send + Sync,
) -> std::io::Result<()> {
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let (mut near_in, mut near_out) = near.into_split();
    let (mut far_in, mut far_out) = far.into_split();
    let (entered, mut under_way) = mpsc::unbounded_channel::<(Instant, Vec<u8>)>();
    let asks = tokio::io::copy(&mut near_in, &mut far_out);
    let answers = async {
        let mut piece = vec![0; 64 << 10];
        loop {
            let length = far_in.read(&mut piece).await?;
            if length == 0
                || entered
                    .send((Instant::now() + delay(), piece[..length].to_vec()))
                    .is_err()
            {
                return Ok::<(), std::io::Error>(());
            }
        }
    };
    let deliveries = async {
        while let Some((due, piece)) = under_way.recv().await {
            tokio::time::sleep_until(due).await;
            near_out.write_all(&piece).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    tokio::select! {
        ended = asks => ended.map(drop),
        ended = answers => ended,
        ended = deliveries => ended,
    }
}
