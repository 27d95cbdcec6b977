//! Echoes every message: the smallest server for pipelining peers.
//!
//! `cargo run --release --example echo` listens on `127.0.0.1:7007`
//! until Ctrl-C or SIGTERM. Messages that arrive together are answered with one write. No message is allocated, except that the
//! line codec makes a `String` of each.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use futures_util::{SinkExt, StreamExt};
use millstream::codec::Framed;
use millstream::net::{TcpListener, TcpStream};
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec, LinesCodec};

#[path = "common/cli.rs"]
mod cli;

/// Maximum message length in bytes; a longer message is an error of the peer.
const LONGEST: usize = 64 << 10;

#[derive(Clone, Copy, ValueEnum)]
enum Framing {
    Lines,
    /// A big-endian length of four bytes before each message.
    Length,
}

/// Echoes every message.
#[derive(Parser)]
struct Options {
    /// Address and port; port 0 chooses a free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7007")]
    listen: SocketAddr,
    /// Threads that run the service.
    #[arg(long, value_name = "N", default_value_t = cli::cpus())]
    workers: NonZeroUsize,
    /// How the end of a message is marked.
    #[arg(long, value_name = "HOW", default_value = "lines")]
    framing: Framing,
}

fn main() -> ExitCode {
    let options = Options::parse();
    cli::exit(cli::runtime(options.workers).and_then(|runtime| runtime.block_on(run(&options))))
}

async fn run(options: &Options) -> Result<(), String> {
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|e| format!("{e}; choose another address with --listen"))?;
    let address = listener.local_addr().map_err(|e| format!("{listen}: {e}", listen = options.listen))?;
    let (what, workers) = match options.framing {
        Framing::Lines => ("lines", options.workers),
        Framing::Length => ("messages with their length before them", options.workers),
    };
    let interrupted = cli::interrupted().map_err(|e| e.to_string())?;
    println!("tcp://{address} echoes {what}, workers: {workers}");
    tokio::select! {
        ended = accept(listener, options.framing) => ended,
        () = interrupted => Ok(()),
    }
    .map_err(|e| format!("{address}: {e}"))
}

async fn accept(listener: TcpListener, framing: Framing) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A disconnect or an overlong message ends its own connection and nothing else.
        match framing {
            Framing::Lines => tokio::spawn(async move {
                let _ = echo::<_, String>(stream, LinesCodec::new_with_max_length(LONGEST)).await;
            }),
            Framing::Length => tokio::spawn(async move {
                let codec = LengthDelimitedCodec::builder().max_frame_length(LONGEST).new_codec();
                let _ = echo::<_, Bytes>(stream, codec).await;
            }),
        };
    }
}

/// Answers all messages of one read with one write: `feed` leaves the time of the flush to the stream.
async fn echo<C, M>(stream: TcpStream, codec: C) -> Result<(), <C as Decoder>::Error>
where
    C: Decoder + Encoder<M, Error = <C as Decoder>::Error>,
    M: From<C::Item>,
{
    let mut messages = std::pin::pin!(Framed::new(stream, codec));
    while let Some(message) = messages.next().await {
        messages.feed(message?.into()).await?;
    }
    messages.close().await
}
