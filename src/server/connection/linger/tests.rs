//! Unit tests of `linger`.

use std::io;
use std::sync::Arc;
use std::task::{Context, ready};

use hyper::rt::{ReadBuf, ReadBufCursor};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::time::sleep;

use super::*;
use crate::net::CountedIo;
use crate::server::limits::Limits;
use crate::server::state::{ConnLimiter, Peer};

/// Decrypts nothing, because no record has arrived whole.
struct Record(CountedIo<DuplexStream>);

impl hyper::rt::Read for Record {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, _: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut bytes = [0; 16];
            ready!(Pin::new(&mut self.0).poll_read(cx, ReadBuf::new(&mut bytes).unfilled()))?;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_parts_of_a_record_is_not_gone() {
    const PARTS: u32 = 6;
    let (mut client, server) = duplex(16);
    let stream = CountedIo::new(server);
    let limits = Arc::new(Limits::default());
    let permit = Arc::<ConnLimiter>::default().admit(None, &limits).expect("room");
    let conn_state = ConnState::new(limits, stream.handle(), Peer::default(), permit);
    let sends = async {
        for _ in 0..PARTS {
            sleep(QUIET / 2).await;
            client.write_all(b"x").await.expect("the server reads");
        }
    };
    let began = Instant::now();
    tokio::join!(linger(Record(stream), &conn_state), sends);
    let (took, sent) = (began.elapsed(), PARTS * QUIET / 2);
    assert!((sent + QUIET / 2..sent + 3 * QUIET).contains(&took), "{took:?}");
}
