//! A proxy in front of one server, for HTTP or for plain bytes. Try it with the `serve` example behind it:
//!
//! `cargo run --release --features relay --example proxy -- --to 127.0.0.1:8080`, then open `http://127.0.0.1:8082/`.
//! `--help` lists the options. Ctrl-C ends it.
//!
//! `relay::Proxy` passes on requests, and `copy::copy_bidirectional` bytes.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use clap::Parser;
use millstream::Capabilities;
use millstream::net::{Accept, Connector, TcpListener, UnixListener};
use millstream::relay::{Proxy, Upstream};
use millstream::server::{Limits, serve};

use options::{Listen, Options};
use relay::relay;

#[path = "../common/cli.rs"]
mod cli;
mod options;
mod relay;
#[path = "../common/report.rs"]
#[allow(clippy::duplicate_mod, reason = "the support of the tests has it too")]
mod report;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;

fn main() -> ExitCode {
    let options = Options::parse();
    cli::exit(cli::runtime(options.workers).and_then(|runtime| runtime.block_on(run(options))))
}

async fn run(options: Options) -> Result<(), String> {
    let passing = async {
        match options.listen.clone() {
            Listen::Tcp(addr) => {
                let listener = TcpListener::bind(addr).await?;
                print_banner(&format!("http://{}/", listener.local_addr()?), &options);
                pass(listener, options).await
            }
            Listen::Unix(path) => {
                let listener = UnixListener::bind(&path).await?;
                print_banner(&format!("unix:{}", path.display()), &options);
                pass(listener, options).await
            }
        }
    };
    tokio::select! {
        passed = passing => passed.map_err(|e| format!("{e}; choose another address with --listen")),
        interrupted = tokio::signal::ctrl_c() => interrupted.map_err(|e| format!("no signals: {e}")),
    }
}

fn print_banner(address: &str, options: &Options) {
    let Options { to, workers, tcp, .. } = options;
    let what = if *tcp { "bytes" } else { "requests" };
    println!("{address} passes {what} to {to}, workers: {workers}\n{}", Capabilities::get());
}

/// Forwards the connections of `listener`.
async fn pass<L: Accept<Stream: AsFd>>(listener: L, options: Options) -> io::Result<()> {
    let (connect, answer) = options.timeouts();
    if options.tcp {
        return relay(listener, Connector::new().timeout(connect), options.to).await;
    }
    let prefix = if options.h2 { "h2c:" } else { "" };
    let upstream: Upstream = format!("{prefix}{}", options.to).parse().map_err(io::Error::other)?;
    let proxy = Proxy::builder(upstream).connect_timeout(connect).timeout(answer);
    let proxy = options.stamps.into_iter().fold(proxy, |proxy, (name, value)| proxy.response_header(name, value));
    // The limit on body size is left to the server behind the proxy.
    let limits = Limits::default().streaming(|_| true);
    serve(listener, proxy.build()).limits(limits).await
}
