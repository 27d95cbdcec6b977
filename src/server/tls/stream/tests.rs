//! Unit tests of `stream`.

use super::*;
use crate::server::tls::Tls;
use crate::server::tls::provider::provider;
use std::future::poll_fn;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, DuplexStream, duplex};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};

struct Counted(DuplexStream, usize);

impl TakeOver for Counted {
    fn count_writes(&mut self, _: Arc<Owed>) {}
}

impl AsyncRead for Counted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.0).poll_write(cx, buf))?;
        self.1 += written;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn encrypted_bytes_are_offered_in_the_same_poll_and_at_most_one_write_waits() {
    let made = rcgen::generate_simple_self_signed(["mill".to_owned()]).unwrap();
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.into()).unwrap();
    let trusting = ClientConfig::builder_with_provider(provider().unwrap()).with_safe_default_protocol_versions();
    let trusting = Arc::new(trusting.unwrap().with_root_certificates(roots).with_no_client_auth());
    let (ours, theirs) = duplex(WRITE_MAX / 4);
    let (ours, theirs) = tokio::join!(
        TlsAcceptor::from(tls.config()).accept(Counted(ours, 0)),
        TlsConnector::from(trusting).connect(ServerName::try_from("mill").unwrap(), theirs),
    );
    let (mut ours, mut theirs) = (TlsStream::new(ours.unwrap()), theirs.unwrap());

    let bytes = vec![7; 3 * WRITE_MAX];
    let before = ours.get_ref().1;
    let mut cx = Context::from_waker(std::task::Waker::noop());
    let taken = AsyncWrite::poll_write(Pin::new(&mut ours), &mut cx, &bytes);
    assert!(matches!(taken, Poll::Ready(Ok(WRITE_MAX))), "{taken:?}");
    assert!(ours.get_ref().1 > before, "nothing was offered in the poll that encrypted");
    // The stream below is full: nothing more is taken.
    assert!(AsyncWrite::poll_write(Pin::new(&mut ours), &mut cx, &bytes).is_pending());

    let send = async {
        let mut sent = WRITE_MAX;
        while sent < bytes.len() {
            sent += poll_fn(|cx| AsyncWrite::poll_write(Pin::new(&mut ours), cx, &bytes[sent..])).await.unwrap();
        }
        poll_fn(|cx| AsyncWrite::poll_shutdown(Pin::new(&mut ours), cx)).await.unwrap();
    };
    let mut got = Vec::new();
    let (_, end) = tokio::join!(send, theirs.read_to_end(&mut got));
    assert!(end.unwrap() == bytes.len() && got == bytes);
}
