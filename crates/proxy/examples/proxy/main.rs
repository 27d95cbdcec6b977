//! A proxy in front of one server, for HTTP or for plain bytes. Try it with the `serve` example behind it:
//!
//! `cargo run --release -p millstream-proxy --example proxy -- --to 127.0.0.1:8080`, then open `http://127.0.0.1:8082/`.
//! `--help` lists the options. Ctrl-C or SIGTERM ends it, after the requests in progress.
//!
//! `millstream_proxy::Proxy` passes on requests, and `copy::copy_bidirectional` bytes.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use millstream::Capabilities;
use millstream::net::{Accept, Connector, TcpListener, UnixListener};
use millstream::server::tls::rustls::crypto::ring;
use millstream::server::tls::rustls::pki_types::CertificateDer;
use millstream::server::tls::rustls::pki_types::pem::PemObject;
use millstream::server::tls::rustls::{ClientConfig, RootCertStore};
use millstream::server::{Limits, serve};
use millstream_proxy::{Proxy, Upstream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use options::{Listen, Options};
use relay::relay;

#[path = "../../../../examples/common/cli.rs"]
mod cli;
mod options;
mod relay;
#[path = "../../../../examples/common/report.rs"]
mod report;
#[cfg(test)]
mod tests;

fn main() -> ExitCode {
    let options = Options::parse();
    cli::exit(cli::runtime(options.workers).and_then(|runtime| runtime.block_on(run(options))))
}

async fn run(options: Options) -> Result<(), String> {
    let interrupted = cli::interrupted().map_err(|e| format!("no signals: {e}"))?;
    let passed = match options.listen.clone() {
        Listen::Tcp(addr) => match TcpListener::bind(addr).await {
            Ok(listener) => {
                let address = listener.local_addr().map_err(|e| e.to_string())?;
                print_banner(&format!("http://{address}/"), &options);
                pass(listener, options, interrupted).await
            }
            Err(e) => Err(e),
        },
        Listen::Unix(path) => match UnixListener::bind(&path).await {
            Ok(listener) => {
                print_banner(&format!("unix:{}", path.display()), &options);
                pass(listener, options, interrupted).await
            }
            Err(e) => Err(e),
        },
    };
    passed.map_err(|e| format!("{e}; choose another address with --listen"))
}

fn print_banner(address: &str, options: &Options) {
    let Options { to, workers, tcp, .. } = options;
    let what = if *tcp { "bytes" } else { "requests" };
    println!("{address} passes {what} to {to}, workers: {workers}\n{}", Capabilities::get());
}

/// Returns how an upstream is reached whose certificate is of one of the authorities in a file.
fn trusting(ca: &Path) -> io::Result<Arc<ClientConfig>> {
    let named = |e: &dyn std::fmt::Display| io::Error::other(format!("{}: {e}", ca.display()));
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_file_iter(ca).map_err(|e| named(&e))? {
        roots.add(root.map_err(|e| named(&e))?).map_err(|e| named(&e))?;
    }
    let provider = Arc::new(ring::default_provider());
    let versions = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = versions.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(Arc::new(config))
}

/// Forwards the connections of `listener` until the signal, and then finishes what is in progress.
async fn pass<L: Accept<Stream: AsFd>>(
    listener: L,
    options: Options,
    signal: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (connect, answer) = options.timeouts();
    if options.tcp {
        let mut connections = JoinSet::new();
        let relaying = relay(listener, Connector::new().timeout(connect), options.to, &mut connections);
        tokio::select! {
            failed = relaying => return failed,
            () = signal => {}
        }
        // Connections that are left then are ended by the end of the process.
        let _ = timeout(cli::PATIENCE, connections.join_all()).await;
        return Ok(());
    }
    let prefix = match &options.ca {
        Some(_) => "https://",
        None if options.h2 => "h2c:",
        None => "",
    };
    let upstream: Upstream = format!("{prefix}{}", options.to).parse()?;
    let mut proxy = Proxy::builder(upstream).connect_timeout(connect).timeout(answer);
    if let Some(ca) = options.ca {
        proxy = proxy.upstream_tls(trusting(&ca)?);
    }
    let proxy = options.stamps.into_iter().fold(proxy, |proxy, (name, value)| proxy.response_header(name, value));
    // The pace of uploads is left to the server behind the proxy.
    let limits = Limits::default().streaming_requests(|_| true);
    serve(listener, proxy.build()?).limits(limits).drain(signal, cli::PATIENCE).await.map(drop)
}
