//! A directory over TLS: HTTP/2 and HTTP/1.1 by ALPN, and a certificate that can be replaced without a restart.
//!
//! `cargo run --release --example tls -- --root DIR` listens on `127.0.0.1:8443` until Ctrl-C or SIGTERM. Without
//! `--cert` and `--key` it creates a self-signed certificate for `localhost`, and a new one at SIGHUP. With them it
//! reloads both files at SIGHUP, the signal that renewal tools send, and checks them for changes once a minute.

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
    /// Certificate chain, PEM; by default one is made for localhost, self-signed. Several are chosen by name (SNI).
    #[arg(long, value_name = "FILE", requires = "key")]
    cert: Vec<PathBuf>,
    /// Its private key, PEM; one for each chain.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Vec<PathBuf>,
    /// Keys of session tickets: created if there are none, and rotated every six hours.
    #[arg(long, value_name = "FILE")]
    ticket_keys: Option<PathBuf>,
    /// Root certificates of clients, PEM. Clients without a certificate are refused.
    #[arg(long, value_name = "FILE")]
    client_roots: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    cli::exit(run(Options::parse()).await)
}

async fn run(options: Options) -> Result<(), String> {
    if options.cert.len() != options.key.len() {
        return Err(format!(
            "{} --cert and {} --key: each certificate needs its key",
            options.cert.len(),
            options.key.len()
        ));
    }
    let made = options.cert.is_empty();
    let mut builder = Tls::builder().reload_every(Duration::from_secs(60));
    if made {
        eprintln!("the certificate is self-signed: clients need an option to trust it (curl --insecure)");
        let (cert, key) = self_signed()?;
        builder = builder.certificate_pem(cert, key);
    }
    for (cert, key) in options.cert.into_iter().zip(options.key) {
        builder = builder.certificate_files(cert, key);
    }
    if let Some(file) = options.ticket_keys {
        builder = builder.ticket_keys(file).rotate_ticket_keys(Duration::from_secs(6 * 60 * 60));
    }
    if let Some(roots) = options.client_roots {
        builder = builder.client_roots_file(roots);
    }
    let tls = builder.build().map_err(|e| report(&e))?;
    let mut hangup = signal(SignalKind::hangup()).map_err(|e| e.to_string())?;
    let handle = tls.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            let replaced = match made {
                true => self_signed().and_then(|(cert, key)| handle.replace_pem(cert, key).map_err(|e| report(&e))),
                false => handle.reload().map_err(|e| report(&e)),
            };
            match replaced {
                Ok(()) => println!("new connections get the new certificate"),
                Err(e) => eprintln!("the old certificate stays in use: {e}"),
            }
        }
    });

    let files = Files::new(&options.root).map_err(|e| format!("--root: {}", report(&e)))?;
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|e| format!("{e}; choose another address with --listen"))?;
    let address = listener.local_addr().map_err(|e| e.to_string())?;
    println!("https://{address}/NAME serves {}", options.root.display());
    let interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    let drained = serve(listener, files).tls(tls).drain(interrupted, cli::PATIENCE).await;
    drained.map(drop).map_err(|e| format!("{address}: {e}"))
}

/// Makes a certificate and its key.
fn self_signed() -> Result<(String, String), String> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}
