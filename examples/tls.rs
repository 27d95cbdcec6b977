//! A directory over TLS: HTTP/2 and HTTP/1.1 by ALPN, and a certificate that can be replaced without a restart.
//!
//! `cargo run --release --features tls --example tls -- --root DIR` listens on `127.0.0.1:8443` until Ctrl-C. Without
//! `--cert` and `--key` it creates a self-signed certificate for `localhost`. With them it reloads both files on
//! SIGHUP, the signal that renewal tools send, and checks them for changes once a minute.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use millstream::files::Files;
use millstream::net::TcpListener;
use millstream::server::serve;
use millstream::server::tls::Tls;
use tokio::signal::unix::{SignalKind, signal};

use report::report;

#[path = "common/cli.rs"]
mod cli;
#[path = "common/report.rs"]
mod report;

/// Serves a directory over TLS.
#[derive(Parser)]
struct Options {
    /// Address and port; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8443")]
    listen: SocketAddr,
    /// Directory to serve.
    #[arg(long, value_name = "DIR", default_value = ".")]
    root: PathBuf,
    /// Certificate chain, PEM; by default one is made for localhost, self-signed.
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// Its private key, PEM.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

async fn run(options: Options) -> Result<(), String> {
    let own = options.cert.is_none();
    let tls = match options.cert.zip(options.key) {
        Some((cert, key)) => {
            let tls = Tls::from_files(cert, key).map_err(|e| report(&e))?;
            tls.reload_every(Duration::from_secs(60))
        }
        None => self_signed().map_err(|e| report(&*e))?,
    };
    let mut hangup = signal(SignalKind::hangup()).map_err(|e| e.to_string())?;
    let handle = tls.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match handle.reload() {
                _ if own => println!("nothing to reload: the certificate is of this process, not from files"),
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
