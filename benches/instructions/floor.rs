//! A loop that sends an event to each reader, over TLS sealed by rustls: a server of events can hardly do less.

use std::io::{self, Write};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::Receiver;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConnection;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::keys;

/// Returns what seals by the certificate of this server.
pub(crate) fn tls() -> io::Result<TlsAcceptor> {
    let (certificate, key) = keys::own().map_err(io::Error::other)?;
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(io::Error::other)?;
    let config = testkit::tls::server().with_single_cert(vec![certificate], key).map_err(io::Error::other)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    mut turns: Receiver<()>,
    event: &[u8],
) -> io::Result<()> {
    let mut readers = Vec::new();
    loop {
        tokio::select! {
            biased;
            accepted = listener.accept() => readers.push(Reader::begin(accepted?.0, tls.as_ref()).await?),
            turn = turns.recv() => {
                turn.map_err(io::Error::other)?;
                readers.iter_mut().try_for_each(|reader| reader.send(event))?;
            }
        }
    }
}

struct Reader {
    socket: Socket,
    session: Option<ServerConnection>,
}

impl Reader {
    async fn begin(mut socket: TcpStream, tls: Option<&TlsAcceptor>) -> io::Result<Self> {
        let Some(tls) = tls else {
            answer(&mut socket).await?;
            return Ok(Self { socket: Socket(socket), session: None });
        };
        let mut stream = tls.accept(socket).await?;
        answer(&mut stream).await?;
        let (socket, session) = stream.into_inner();
        Ok(Self { socket: Socket(socket), session: Some(session) })
    }

    fn send(&mut self, event: &[u8]) -> io::Result<()> {
        let Some(session) = &mut self.session else { return self.socket.write_all(event) };
        session.writer().write_all(event)?;
        while session.wants_write() {
            session.write_tls(&mut self.socket)?;
        }
        Ok(())
    }
}

/// Reads a request, and answers it with a response without an end.
async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
    stream.flush().await
}

/// Writes what has room.
struct Socket(TcpStream);

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
