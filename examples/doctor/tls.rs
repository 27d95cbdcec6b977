//! Files over TLS, encrypted by this process or by the kernel.

use std::net::{Ipv4Addr, TcpListener, TcpStream as StdStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use millstream::fs::File;
use millstream::net::TcpStream;
use millstream::runtime::Io;
use millstream::server::tls::rustls::pki_types::{CertificateDer, ServerName};
use millstream::server::tls::rustls::{ClientConfig, ClientConnection, RootCertStore};
use millstream::server::tls::{Tls, TlsStream};
use rustix::time::ClockId;

use crate::link;
use crate::measure::{Error, Path, Row, bytes, file, runtime, send_file, spent};

pub(crate) const SIZES: [usize; 2] = [1 << 20, 8 << 20];

/// A file of `size` bytes over TLS on loopback. `auto` is encryption by this process.
pub(crate) fn files(size: usize, slice: Duration) -> Result<Row, Error> {
    let (_dir, _, path) = file(size)?;
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
    let tls = Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem())?;
    let path = &path;
    let by = |name, tls: Tls| -> Result<Path<'_>, Error> {
        let runtime = runtime(Io::Auto)?;
        let (file, mut stream) = runtime.block_on(async {
            let stream: TlsStream<TcpStream> = tls.accept(connect(&tls, made.cert.der().clone())?).await?;
            Ok::<_, Error>((File::open(path).await?, stream))
        })?;
        let run = move |n| {
            spent(ClockId::ThreadCPUTime, || {
                runtime.block_on(async {
                    for _ in 0..n {
                        send_file(&mut stream, &file, true).await?;
                    }
                    Ok(())
                })
            })
        };
        Ok(Path { name, ours: true, run: Box::new(run) })
    };
    let paths = vec![by("auto", tls.clone())?, by("kernel TLS", tls.kernel_tls(true))?];
    Row::measure(bytes(size), slice, paths)
}

/// Connects to a client that performs a handshake, and discards what it receives then.
fn connect(tls: &Tls, root: CertificateDer<'static>) -> Result<TcpStream, Error> {
    let mut roots = RootCertStore::empty();
    roots.add(root)?;
    // A build with several providers has no default one.
    let provider = Arc::clone(tls.config().crypto_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let mut session = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost")?)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut client = StdStream::connect(listener.local_addr()?)?;
    thread::spawn(move || {
        if session.complete_io(&mut client).is_ok() {
            link::discard(client);
        }
    });
    Ok(TcpStream::from_std(listener.accept()?.0)?)
}
