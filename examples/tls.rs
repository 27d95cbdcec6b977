//! A directory over TLS: HTTP/2 and HTTP/1.1 by ALPN, and a certificate that can be replaced without a restart.
//!
//! `cargo run --release --features tls --example tls -- --root DIR` listens on `127.0.0.1:8443` until Ctrl-C. Without
//! `--cert` and `--key` it creates a self-signed certificate for `localhost`. With them it reloads both files on
//! SIGHUP, the signal that renewal tools send, and checks them for changes once a minute.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use millstream::files::Files;
use millstream::net::TcpListener;
use millstream::server::serve;
use millstream::server::tls::Tls;
use tokio::signal::unix::{SignalKind, signal};

use report::report;

#[path = "common/report.rs"]
mod report;

const USAGE: &str = "\
usage: cargo run --release --features tls --example tls -- [--listen ADDR] [--root DIR] [--cert FILE --key FILE]
  --listen ADDR   address and port, default 127.0.0.1:8443; port 0 chooses a free one
  --root DIR      directory to serve, default the current one
  --cert FILE     certificate chain, PEM; default: self-signed, for localhost
  --key FILE      its private key, PEM";

struct Options {
    listen: SocketAddr,
    root: PathBuf,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Parses the command line. The error text is complete.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 8443));
    let mut options = Options { listen, root: PathBuf::from("."), cert: None, key: None };
    while let Some(flag) = args.next() {
        if !matches!(flag.as_str(), "--listen" | "--root" | "--cert" | "--key") {
            return Err(USAGE.to_owned());
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
        match flag.as_str() {
            "--listen" => options.listen = value.parse().map_err(|_| format!("{flag} {value}: not an address"))?,
            "--root" => options.root = value.into(),
            "--cert" => options.cert = Some(value.into()),
            _ => options.key = Some(value.into()),
        }
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> ExitCode {
    let ended = match parse(std::env::args().skip(1)) {
        Ok(options) => run(options).await,
        Err(wrong) => Err(wrong),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), String> {
    let tls = match (options.cert, options.key) {
        (Some(cert), Some(key)) => {
            let tls = Tls::from_files(cert, key).map_err(|e| report(&e))?;
            tls.reload_every(Duration::from_secs(60))
        }
        (None, None) => self_signed().map_err(|e| report(&*e))?,
        _ => return Err(format!("give both --cert and --key, or neither\n{USAGE}")),
    };
    let mut hangup = signal(SignalKind::hangup()).map_err(|e| e.to_string())?;
    let handle = tls.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match handle.reload() {
                Ok(()) => println!("new connections get the new certificate"),
                Err(e) => eprintln!("the old certificate stays in use: {}", report(&e)),
            }
        }
    });

    let files = Files::new(&options.root).map_err(|e| format!("--root: {}", report(&e)))?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|e| format!("{e}; choose another address with --listen"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    println!("https://{address}/NAME serves {}", options.root.display());
    let drained = serve(listener, files).tls(tls).drain(tokio::signal::ctrl_c(), Duration::from_secs(5)).await;
    drained.map(drop).map_err(|e| format!("{address}: {e}"))
}

fn self_signed() -> Result<Tls, Box<dyn std::error::Error>> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    eprintln!("the certificate is self-signed: clients need an option to trust it (curl --insecure)");
    Ok(Tls::from_pem(made.cert.pem(), made.signing_key.serialize_pem())?)
}
