//! A connection between parts, encrypted or not.

use std::io::{self, IoSlice};
use std::net::TcpStream as StdTcpStream;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Buf;
use tokio::io::{
    AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf, ReadHalf as HalfToRead,
    WriteHalf as HalfToWrite,
};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_rustls::TlsStream;

type Encrypted = Box<TlsStream<Socket>>;

/// A connection between parts. As with any that buffers, what was written is on its way once it was flushed.
pub struct Stream(Kind);

enum Kind {
    Plain(TcpStream),
    Tls(Encrypted),
}

/// The TCP connection below TLS, which can be taken to another runtime.
pub(crate) struct Socket(Option<TcpStream>);

/// A connection that belongs to no runtime.
pub struct Detached(StdTcpStream, Option<Encrypted>);

/// The half of a connection that is read.
pub enum ReadHalf {
    /// Not encrypted.
    Plain(OwnedReadHalf),
    /// Encrypted.
    Tls(HalfToRead<EncryptedStream>),
}

/// The half of a connection that is written. What was sent is on its way: nothing has to be flushed.
pub enum WriteHalf {
    /// Not encrypted.
    Plain(OwnedWriteHalf),
    /// Encrypted.
    Tls(HalfToWrite<EncryptedStream>),
}

/// A connection with TLS.
pub struct EncryptedStream(Encrypted);

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream(Kind::Plain(stream))
    }
}

impl Stream {
    pub(crate) fn encrypted(stream: TlsStream<Socket>) -> Stream {
        Stream(Kind::Tls(Box::new(stream)))
    }

    fn socket(&self) -> io::Result<&TcpStream> {
        match &self.0 {
            Kind::Plain(stream) => Ok(stream),
            Kind::Tls(stream) => stream.get_ref().0.0.as_ref().ok_or_else(detached),
        }
    }

    /// Whether small messages go out at once, as with [`TcpStream::set_nodelay`].
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn set_nodelay(&self, at_once: bool) -> io::Result<()> {
        self.socket()?.set_nodelay(at_once)
    }

    /// Both halves, each for a task of its own.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        match self.0 {
            Kind::Plain(stream) => {
                let (reader, writer) = stream.into_split();
                (ReadHalf::Plain(reader), WriteHalf::Plain(writer))
            }
            Kind::Tls(stream) => {
                let (reader, writer) = tokio::io::split(EncryptedStream(stream));
                (ReadHalf::Tls(reader), WriteHalf::Tls(writer))
            }
        }
    }

    /// The halves as one again.
    ///
    /// # Errors
    ///
    /// They are of two connections.
    pub fn reunite(reader: ReadHalf, writer: WriteHalf) -> io::Result<Stream> {
        match (reader, writer) {
            (ReadHalf::Plain(reader), WriteHalf::Plain(writer)) => {
                let stream = reader.reunite(writer).map_err(io::Error::other)?;
                Ok(Stream(Kind::Plain(stream)))
            }
            (ReadHalf::Tls(reader), WriteHalf::Tls(writer)) if reader.is_pair_of(&writer) => {
                Ok(Stream(Kind::Tls(reader.unsplit(writer).0)))
            }
            _ => Err(io::Error::other("two halves of different connections")),
        }
    }

    /// Takes the connection from the runtime that it was made in.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn detach(self) -> io::Result<Detached> {
        match self.0 {
            Kind::Plain(stream) => Ok(Detached(stream.into_std()?, None)),
            Kind::Tls(mut stream) => {
                let socket = stream.get_mut().0.0.take().ok_or_else(detached)?;
                Ok(Detached(socket.into_std()?, Some(stream)))
            }
        }
    }
}

impl Detached {
    /// The connection in the runtime that this is called in.
    ///
    /// # Errors
    ///
    /// The system refuses it.
    pub fn attach(self) -> io::Result<Stream> {
        let socket = TcpStream::from_std(self.0)?;
        Ok(Stream(match self.1 {
            None => Kind::Plain(socket),
            Some(mut stream) => {
                stream.get_mut().0.0 = Some(socket);
                Kind::Tls(stream)
            }
        }))
    }
}

impl WriteHalf {
    /// Sends all these bytes.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            WriteHalf::Plain(writer) => writer.write_all(bytes).await,
            WriteHalf::Tls(writer) => {
                writer.write_all(bytes).await?;
                writer.flush().await
            }
        }
    }

    /// Sends all that is in `bytes`, without putting its pieces together first where the connection is not encrypted.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn send_all(&mut self, bytes: &mut impl Buf) -> io::Result<()> {
        match self {
            WriteHalf::Plain(writer) => writer.write_all_buf(bytes).await,
            WriteHalf::Tls(writer) => {
                writer.write_all_buf(bytes).await?;
                writer.flush().await
            }
        }
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    ///
    /// The connection is broken.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            WriteHalf::Plain(writer) => writer.shutdown().await,
            WriteHalf::Tls(writer) => writer.shutdown().await,
        }
    }
}

fn detached() -> io::Error {
    io::Error::new(
        io::ErrorKind::NotConnected,
        "the connection is between two runtimes",
    )
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Socket {
        Socket(Some(stream))
    }

    fn stream(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        self.0.as_mut().map(Pin::new).ok_or_else(detached)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.0 {
            Kind::Plain(stream) => stream.is_write_vectored(),
            Kind::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_flush(context),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(context),
        }
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().0.as_mut()).poll_read(context, buffer)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().0.as_mut()).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(self.get_mut().0.as_mut()).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().0.as_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(self.get_mut().0.as_mut()).poll_shutdown(context)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut().stream()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .stream()?
            .poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.as_ref().is_some_and(TcpStream::is_write_vectored)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().stream()?.poll_shutdown(context)
    }
}

impl AsyncRead for ReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ReadHalf::Plain(reader) => Pin::new(reader).poll_read(context, buffer),
            ReadHalf::Tls(reader) => Pin::new(reader).poll_read(context, buffer),
        }
    }
}
