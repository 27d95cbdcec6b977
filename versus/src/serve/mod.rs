//! The servers that this program can be: millstream, and the stock server it is compared with. Both answer the routes
//! of the examples: `/hello`, `/f/NAME`, `/tokens`; `/paced`, which are tokens at a pace; and `PUT /u/NAME`. Or, if asked
//! to, they answer with one stream of events, relay bytes, or pass requests on.

mod millstream;
mod paced;
mod settings;
mod stock;

use std::io;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::options::{Own, ServeOptions};

pub(crate) use paced::{PACE, TOKEN};
pub(crate) use settings::Settings;

pub(crate) fn serve(options: &ServeOptions) -> Result<(), String> {
    let settings = Settings::parse(&options.settings)?;
    let served = match options.server {
        Own::Millstream => millstream::serve(options, &settings),
        Own::Stock => stock::serve(options),
    };
    served.map_err(|e| format!("{:?}: {e}", options.server))
}

/// Listens on a free port of 127.0.0.1 with a queue that takes thousands of connections at once.
fn listener() -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
    socket.listen(4096)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Tells the process that has started this one where to connect.
fn announce(address: SocketAddr) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{address}")?;
    out.flush()
}

/// Calls `send` at a steady rate with data of 100 bytes that begin with the time.
async fn tick(hz: u32, mut send: impl FnMut(String)) {
    let mut ticks = interval(Duration::from_secs(1) / hz);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        send(format!("{:x<100}", format!("{} ", now.as_nanos())));
    }
}

fn pem(dir: &Path) -> io::Result<[Vec<u8>; 2]> {
    Ok([std::fs::read(dir.join("cert.pem"))?, std::fs::read(dir.join("key.pem"))?])
}

/// Returns the configuration of a client with HTTP/1.1 that trusts the certificate in a directory.
fn trusting(dir: &Path) -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(dir.join("cert.pem")).map_err(io::Error::other)? {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    // What all proxies of the comparison speak with the server behind them.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Returns the file name in the path of an upload.
fn upload_name(path: &str) -> Option<&str> {
    path.strip_prefix("/u/").filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
