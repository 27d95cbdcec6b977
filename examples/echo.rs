//! Echoes every message: the smallest server for pipelining peers.
//!
//! `cargo run --release --example echo -- [--listen ADDR] [--workers N] [--framing HOW]` listens on `127.0.0.1:7007`
//! until Ctrl-C. Messages that arrive together are answered with one write. No message is allocated, except that the
//! line codec makes a `String` of each.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use millstream::codec::Framed;
use millstream::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio_util::codec::{Decoder, Encoder, LengthDelimitedCodec, LinesCodec};

const USAGE: &str = "\
usage: cargo run --release --example echo -- [--listen ADDR] [--workers N] [--framing HOW]
  --listen ADDR   address and port, default 127.0.0.1:7007; port 0 chooses a free one
  --workers N     threads, default one for each CPU of this process
  --framing HOW   lines (default), or length: a big-endian length of four bytes before each message";

/// Maximum message length in bytes; a longer message is an error of the peer.
const LONGEST: usize = 64 << 10;

#[derive(Clone, Copy)]
enum Framing {
    Lines,
    Length,
}

struct Options {
    listen: SocketAddr,
    workers: NonZeroUsize,
    framing: Framing,
}

/// Parses the command line. The error text is complete.
fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    // Respects the CPU affinity of the process.
    let workers = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let listen = SocketAddr::from(([127, 0, 0, 1], 7007));
    let mut options = Options { listen, workers, framing: Framing::Lines };
    while let Some(flag) = args.next() {
        if !matches!(flag.as_str(), "--listen" | "--workers" | "--framing") {
            return Err(USAGE.to_owned());
        }
        let value = args.next().ok_or_else(|| format!("{flag} needs a value\n{USAGE}"))?;
        let wrong = || format!("{flag} {value}: no such choice\n{USAGE}");
        match flag.as_str() {
            "--listen" => options.listen = value.parse().map_err(|_| wrong())?,
            "--workers" => options.workers = value.parse().map_err(|_| wrong())?,
            _ => {
                options.framing = match value.as_str() {
                    "lines" => Framing::Lines,
                    "length" => Framing::Length,
                    _ => return Err(wrong()),
                };
            }
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let result = parse(std::env::args().skip(1)).and_then(|options| {
        let mut builder = match options.workers.get() {
            1 => Builder::new_current_thread(),
            _ => Builder::new_multi_thread(),
        };
        let runtime = builder.worker_threads(options.workers.get()).enable_all().build();
        runtime.map_err(|e| format!("the runtime did not start: {e}"))?.block_on(run(&options))
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), String> {
    let listener = TcpListener::bind(options.listen).await;
    let listener = listener.map_err(|e| format!("{e}; choose another address with --listen"))?;
    let address = listener.local_addr().map_err(|e| format!("{listen}: {e}", listen = options.listen))?;
    let (what, workers) = match options.framing {
        Framing::Lines => ("lines", options.workers),
        Framing::Length => ("messages with their length before them", options.workers),
    };
    println!("tcp://{address} echoes {what}, workers: {workers}");
    tokio::select! {
        ended = accept(listener, options.framing) => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted,
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
