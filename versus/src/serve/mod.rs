//! The servers that this program can be: millstream, and the stock server it is compared with. Both answer the routes
//! of the examples: `/hello`, `/f/NAME`, `/tokens`, and `PUT /u/NAME`; or, if asked to, one stream of events, or they
//! relay bytes.

mod millstream;
mod settings;
mod stock;

use std::io;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{MissedTickBehavior, interval};

use crate::options::{Own, ServeOptions};

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

/// Returns the file name in the path of an upload.
fn upload_name(path: &str) -> Option<&str> {
    path.strip_prefix("/u/").filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}
