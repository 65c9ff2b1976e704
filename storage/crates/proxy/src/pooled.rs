//! Transaction pooling: sessions of clients that share server connections. What is to be done is decided in `pool`; here
//! are the connections it is done with.
//!
//! A server connection that is given back is outside of a transaction, has answered all it was asked, and is no target of
//! a request to cancel. One of which that is not certain is closed.

pub mod connection;
pub mod pools;
pub mod serve;
pub mod session;
mod turn;

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// Most bytes that are read at once.
const MOST_READ_BYTES: usize = 64 << 10;

thread_local! {
    static BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST_READ_BYTES].into_boxed_slice());
}

/// Hands what comes next to `take`, and answers with how many bytes that were: none at the end. While nothing comes, no
/// buffer is held.
async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    mut take: impl FnMut(&[u8]),
) -> io::Result<usize> {
    poll_fn(|cx| poll_read(cx, reader, &mut take)).await
}

/// The same for one look at the reader.
fn poll_read(
    cx: &mut Context<'_>,
    reader: &mut (impl AsyncRead + Unpin),
    take: impl FnOnce(&[u8]),
) -> Poll<io::Result<usize>> {
    BUFFER.with_borrow_mut(|buffer| {
        let mut buffer = ReadBuf::new(buffer);
        match ready!(Pin::new(reader).poll_read(cx, &mut buffer)) {
            Ok(()) => {}
            // Without TLS's own goodbye, as some drivers go.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Poll::Ready(Ok(0));
            }
            Err(error) => return Poll::Ready(Err(error)),
        }
        if !buffer.filled().is_empty() {
            take(buffer.filled());
        }
        Poll::Ready(Ok(buffer.filled().len()))
    })
}
