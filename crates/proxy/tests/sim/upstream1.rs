//! The upstream of HTTP/1.

use std::sync::Arc;
use std::time::Duration;

use testkit::sim::{Dice, Pace, RequestHead, Socket, Wire, bytes_of};
use tokio::io::AsyncWriteExt;
use tokio::time::{sleep, timeout};

use crate::script::{Kind, Target};
use crate::tunnel;
use crate::world::{Counted, World};

/// Time in which bytes arrive.
const WAY: Duration = Duration::from_millis(500);
/// Time for which a connection that was ended is read.
const LINGER: Duration = Duration::from_secs(5);

/// Heads that are not those of a response.
const GARBAGE: [&str; 4] = [
    "HTTP/1.1 banana\r\n\r\n",
    "garbage\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n\r\nhello",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
];

/// An answer that no request has asked for.
const STRAY: &[u8] = b"HTTP/1.1 200 OK\r\nx-tag: stray\r\nContent-Length: 5\r\n\r\nstray";
/// Longest answer with bytes behind it: one write of the kernel's socket.
const TOGETHER: usize = 4 << 10;

/// What follows an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Request,
    /// The end of its side. It reads what comes.
    End,
    /// It closes at once, which resets the connection if bytes are unread.
    Close,
}

struct Talk {
    world: Arc<World>,
    wire: Wire,
    dice: Dice,
    /// Takes the connection from the count once the proxy may have closed it. The upload that it has sent may take long.
    uncounted: Option<Counted>,
}

pub(crate) async fn serve(world: Arc<World>, socket: Socket, mut dice: Dice) {
    let is_rough = world.terms.is_rough;
    let most = if is_rough { dice.of_any_size(1..=30) } else { u64::MAX };
    let idle = Duration::from_millis(if is_rough { dice.of_any_size(1..=10_000) } else { 1_000_000_000 });
    let mut talk = Talk { world, wire: Wire::new(socket, Pace::FAST), dice, uncounted: None };
    for number in 1.. {
        // It ends idle connections, but no new one.
        let limit = if number == 1 { Duration::from_secs(1_000_000) } else { idle };
        let Ok(Ok(head)) = timeout(limit, talk.wire.request()).await else { return };
        let says_close = number == most && talk.dice.chance(50);
        match talk.answer(&head, says_close).await {
            Next::Request if number < most => {}
            Next::Close => return,
            _ => return talk.end().await,
        }
    }
}

impl Talk {
    async fn answer(&mut self, head: &RequestHead, says_close: bool) -> Next {
        let (world, link) = (Arc::clone(&self.world), self.wire.io.link());
        let mut line = head.line.split(' ');
        let (method, path) = (line.next().unwrap_or_default(), line.next().unwrap_or_default());
        let Some(target) = Target::parse(path).filter(|_| line.next() == Some("HTTP/1.1")) else {
            world.fault(link, format_args!("the upstream gets {head:?}"));
            return Next::End;
        };
        world.reached(link, target.tag, method == "POST");
        if target.kind == Kind::Early {
            return self.refuse(&target).await;
        }
        let body = self.wire.request_body(head).await;
        if body.cut.is_some() {
            return Next::End;
        }
        check_upload(&world, link, &target, &body.bytes);
        match target.kind {
            Kind::Silent => self.wait().await,
            Kind::Cut => {
                world.cut(target.tag);
                return Next::End;
            }
            Kind::Garbage => {
                let garbage = *self.dice.pick(&GARBAGE);
                let _ = self.wire.send(garbage.as_bytes()).await;
                self.wait().await;
            }
            Kind::Tunnel => tunnel::upstream(&world, &mut self.wire, &target).await,
            _ if self.respond(&target, says_close).await && !says_close => return Next::Request,
            _ => {}
        }
        Next::End
    }

    /// Responds before it has read the body of the request.
    async fn refuse(&mut self, target: &Target) -> Next {
        let text =
            format!("HTTP/1.1 413 Large\r\nx-tag: {}\r\nConnection: close\r\nContent-Length: 5\r\n\r\n", target.tag);
        let mut bytes = text.into_bytes();
        bytes.extend(target.bytes());
        let (next, is_at_once) = *self.dice.pick(&[(Next::End, false), (Next::Close, false), (Next::Close, true)]);
        if is_at_once {
            // Unread bytes, so that a reset arrives together with the response.
            let _ = timeout(WAY, self.unread()).await;
        }
        let _ = self.wire.send(&bytes).await;
        self.uncounted = Some(Counted::new(&self.world, -1));
        if next == Next::Close && !is_at_once {
            sleep(WAY).await;
        }
        next
    }

    /// Waits until bytes have arrived that were not read.
    async fn unread(&self) {
        while self.wire.io.unread() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn respond(&mut self, target: &Target, says_close: bool) -> bool {
        let is_chunked = target.tag % 2 == 1 && target.kind != Kind::Closing;
        let mut bytes = Vec::new();
        if target.kind == Kind::Interim {
            bytes.extend(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n");
        }
        let framing = match target.kind {
            Kind::Closing => "Connection: close\r\n".to_owned(),
            _ if is_chunked => "Transfer-Encoding: chunked\r\n".to_owned(),
            _ => format!("Content-Length: {}\r\n", target.len),
        };
        let close = if says_close && target.kind != Kind::Closing { "Connection: close\r\n" } else { "" };
        let mut head = format!("HTTP/1.1 200 OK\r\nx-tag: {}\r\n{framing}{close}\r\n", target.tag).into_bytes();
        bytes.append(&mut head);
        for (gap, piece) in target.pieces() {
            if gap > 0 {
                // The head may come before the body.
                if target.kind != Kind::Late && self.dice.chance(50) && !self.send(&mut bytes).await {
                    return false;
                }
                sleep(Duration::from_millis(gap)).await;
            }
            if is_chunked {
                bytes.extend(format!("{:x}\r\n", piece.len()).into_bytes());
            }
            bytes.extend(piece);
            if is_chunked {
                bytes.extend(b"\r\n");
            }
        }
        if is_chunked && !matches!(target.kind, Kind::Stall | Kind::Torn) {
            bytes.extend(b"0\r\n\r\n");
        }
        let may_be_behind = bytes.len() < TOGETHER && !matches!(target.kind, Kind::Stall | Kind::Torn | Kind::Closing);
        if self.world.terms.has_strays && may_be_behind && self.dice.chance(30) {
            bytes.extend(STRAY);
        }
        if !self.send(&mut bytes).await {
            return false;
        }
        match target.kind {
            Kind::Stall => self.wait().await,
            Kind::Torn => sleep(WAY).await,
            Kind::Closing => {}
            _ => return true,
        }
        false
    }

    async fn send(&mut self, bytes: &mut Vec<u8>) -> bool {
        let sent = self.wire.send(bytes).await.is_ok();
        bytes.clear();
        sent
    }

    /// Waits until the proxy has closed the connection.
    async fn wait(&mut self) {
        let _ = self.wire.end().await;
    }

    /// Ends its side, and reads what comes.
    async fn end(&mut self) {
        let _ = self.wire.io.shutdown().await;
        let _ = timeout(LINGER, self.wire.end()).await;
    }
}

/// Compares the body of a request with what the client sends. The length of an upload is in its path.
pub(crate) fn check_upload(world: &World, link: u64, target: &Target, body: &[u8]) {
    let is_whole = target.kind != Kind::Upload || body.len() as u64 == target.millis;
    if !is_whole || body != bytes_of(target.tag ^ 1, body.len()) {
        world.fault(link, format_args!("{} wrong bytes of the upload {target:?}", body.len()));
    }
}
