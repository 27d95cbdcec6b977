//! A proxy in front of one server, for HTTP or for plain bytes. Try it with the `serve` example behind it:
//!
//! `cargo run --release --features client --example proxy -- --to 127.0.0.1:8080`, then open `http://127.0.0.1:8082/`.
//! `--help` lists the options. Ctrl-C ends it.
//!
//! Both sides use millstream: the listener and `server::serve` in front, `net::Connector` under hyper-util's client
//! behind.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitCode;

use clap::Parser;
use http::uri::Authority;
use hyper_util::client::legacy::connect::Connect;
use millstream::Capabilities;
use millstream::net::{Accept, Connector, TcpListener, UnixListener};
use millstream::server::{Limits, serve};

use options::{Listen, Options};
use relay::{Target, relay};
use reverse::{Plan, Reverse};

#[path = "../common/cli.rs"]
mod cli;
mod fields;
mod options;
mod relay;
#[path = "../common/report.rs"]
#[allow(clippy::duplicate_mod, reason = "the support of the tests has it too")]
mod report;
mod reverse;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
#[cfg(test)]
mod tests;
mod watched;

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
    let timeout = options.timeouts().0;
    let connector = Connector::new().timeout(timeout);
    match options.to.clone() {
        to if options.tcp => relay(listener, connector, to).await,
        to @ Target::Tcp(..) => reverse(listener, connector, &to.to_string(), options).await,
        Target::Unix(path) => {
            let connector = Connector::unix(path).timeout(timeout);
            reverse(listener, connector, "localhost", options).await
        }
    }
}

async fn reverse<L: Accept>(
    listener: L,
    connector: impl Connect + Clone + Send + Sync + 'static,
    to: &str,
    options: Options,
) -> io::Result<()> {
    let (_, timeout) = options.timeouts();
    let to: Authority = to.parse().map_err(io::Error::other)?;
    let stamps = options.stamps.into_iter().collect();
    let proxy = Reverse::new(connector, Plan { to, h2: options.h2, stamps, timeout });
    // The limit on body size is left to the server behind the proxy.
    let limits = Limits::default().streaming(|_| true);
    serve(listener, proxy).limits(limits).await
}
