//! One WebSocket, from the handshake to its end: the events of the hub, and what the client and the service send.

use std::future::{Future, pending, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use millstream::body::GracefulClose;
use millstream::server::DrainSignal;
use millstream::sse::EventBody;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::PollSender;
use tungstenite::error::{Error, ProtocolError};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, Message as Received, Role, WebSocketConfig, WebSocketContext};

use crate::client::{ClientEnds, Message};
use crate::framing::as_close;
use crate::socket::Socket;

/// Time for the client to answer a close frame, and to end the connection.
const CLOSING: Duration = Duration::from_secs(5);

/// Bytes that are read at once. Messages of clients are short.
const READ: usize = 1 << 10;

/// Events and messages of a client after which its task lets others run.
const TURN: usize = 32;

/// Longest payload of a control frame, RFC 6455 §5.5.
const CONTROL: usize = 125;

/// Limits of a WebSocket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) message: usize,
    pub(crate) idle: Duration,
}

pub(crate) struct Session<S> {
    socket: Socket<S>,
    context: WebSocketContext,
    /// Dropped once the WebSocket closes, so that the hub sends nothing behind the close frame.
    events: Option<EventBody>,
    /// To the service. `None` once no more can come.
    messages: Option<PollSender<Message>>,
    /// From the service.
    replies: mpsc::Receiver<Message>,
    phase: Phase,
    idle: Duration,
    /// When the client has last sent something, or the phase has begun.
    since: Instant,
    /// Whether a ping was sent after that.
    is_asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// A close frame was sent, and the client has not answered.
    Closing,
    /// Nothing more is sent or parsed.
    Ends,
    /// The sending side was shut down.
    Lingers,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// `early` are the bytes of the client that were read with the request.
    pub(crate) fn new(socket: Socket<S>, early: &[u8], events: EventBody, client: ClientEnds, limits: Limits) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ)
            .write_buffer_size(0)
            .max_message_size(Some(limits.message))
            .max_frame_size(Some(limits.message.max(CONTROL)));
        let context = WebSocketContext::from_partially_read(early.to_vec(), Role::Server, Some(config));
        let ClientEnds { messages, replies } = client;
        // A service that wants no message has dropped the other end.
        let messages = Some(messages).filter(|messages| !messages.is_closed()).map(PollSender::new);
        let (events, phase, since) = (Some(events), Phase::Open, Instant::now());
        Self { socket, context, events, messages, replies, phase, idle: limits.idle, since, is_asked: false }
    }

    /// Runs the WebSocket to its end, beside `service`, at whose end it is closed.
    pub(crate) async fn run(
        mut self,
        ending: Option<GracefulClose>,
        drain: Option<DrainSignal>,
        service: impl Future<Output = ()>,
    ) {
        let drained = async {
            match &drain {
                Some(drain) => drain.draining().await,
                None => pending().await,
            }
        };
        let (mut drained, mut service, mut timer) = (pin!(drained), pin!(service), pin!(sleep(self.limit())));
        let (mut is_drained, mut is_served) = (false, false);
        poll_fn(|cx| {
            if !is_drained && drained.as_mut().poll(cx).is_ready() {
                is_drained = true;
                if let Some(ending) = &ending {
                    ending.end();
                }
            }
            if !is_served && service.as_mut().poll(cx).is_ready() {
                is_served = true;
                if self.close(CloseFrame { code: CloseCode::Normal, reason: "".into() }).is_err() {
                    return Poll::Ready(());
                }
            }
            self.poll(cx, timer.as_mut())
        })
        .await;
    }

    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>, mut timer: Pin<&mut Sleep>) -> Poll<()> {
        self.socket.set_waker(cx);
        if self.poll_connection(cx).is_ready() {
            return Poll::Ready(());
        }
        if self.socket.take_heard() && self.phase == Phase::Open {
            self.begin(Phase::Open);
        }
        loop {
            let ends = self.since + self.limit();
            if ends < timer.deadline() {
                timer.as_mut().reset(ends);
            }
            ready!(timer.as_mut().poll(cx));
            if ends > Instant::now() {
                timer.as_mut().reset(ends);
                continue;
            }
            let said = match self.phase {
                Phase::Open if !self.is_asked => self.ask(),
                Phase::Open => self.disconnect(CloseCode::Policy),
                _ => return Poll::Ready(()),
            };
            if said.is_err() || self.poll_connection(cx).is_ready() {
                return Poll::Ready(());
            }
        }
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURN {
            // A client that takes nothing is not read either, because reading may queue an answer.
            ready!(self.socket.poll_room(cx))?;
            match self.phase {
                Phase::Open | Phase::Closing => {
                    let is_busy = [self.poll_events(cx)?, self.poll_replies(cx)?, self.read(cx)?];
                    if is_busy.iter().all(Poll::is_pending) {
                        // The last read may have queued an answer.
                        ready!(self.socket.poll_room(cx))?;
                        return Poll::Pending;
                    }
                }
                Phase::Ends => {
                    ready!(self.socket.poll_shutdown(cx))?;
                    self.begin(Phase::Lingers);
                }
                // To close with unread bytes would reset the connection, and the client might lose the close frame.
                Phase::Lingers => return self.socket.poll_end(cx).map(Ok),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_events(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let Some(events) = &mut self.events else { return Ok(Poll::Pending) };
        let Poll::Ready(frame) = self.socket.poll_events(events, cx) else { return Ok(Poll::Pending) };
        match frame.as_deref().map(as_close) {
            Some(None) => self.socket.send(frame.unwrap_or_default())?,
            Some(Some(close)) => self.close(close)?,
            None => self.close(CloseFrame { code: CloseCode::Normal, reason: "".into() })?,
        }
        Ok(Poll::Ready(()))
    }

    /// Sends the next message of the service.
    fn poll_replies(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        let Poll::Ready(Some(message)) = self.replies.poll_recv(cx) else { return Ok(Poll::Pending) };
        if self.phase == Phase::Open {
            self.reply(message)?;
        }
        Ok(Poll::Ready(()))
    }

    fn reply(&mut self, message: Message) -> io::Result<()> {
        let message = match message {
            Message::Text(text) => Received::text(text),
            Message::Binary(bytes) => Received::binary(bytes),
        };
        self.context.write(&mut self.socket, message).map_err(io::Error::other)
    }

    /// Sends a ping, whose answer shows that the client is there. A client that only listens sends nothing else, and the
    /// hub sends pings to those only that get no events.
    fn ask(&mut self) -> io::Result<()> {
        self.is_asked = true;
        self.context.write(&mut self.socket, Received::Ping(Bytes::new())).map_err(io::Error::other)
    }

    /// Reads the next frame of the client.
    fn read(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        match self.messages.as_mut().map(|messages| messages.poll_reserve(cx)) {
            Some(Poll::Pending) => {
                // The service has to take a message first: the client is not silent.
                self.begin(Phase::Open);
                return Ok(Poll::Pending);
            }
            // The service takes no more messages.
            Some(Poll::Ready(Err(_))) => self.messages = None,
            Some(Poll::Ready(Ok(()))) | None => {}
        }
        let message = match self.context.read(&mut self.socket) {
            Ok(Received::Text(text)) => Message::Text(text.as_str().to_owned()),
            Ok(Received::Binary(bytes)) => Message::Binary(bytes),
            Ok(Received::Close(_)) => {
                // The next read sends the answer.
                self.stop(Phase::Closing);
                return Ok(Poll::Ready(()));
            }
            Ok(_) => return Ok(Poll::Ready(())),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Poll::Pending),
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => {
                self.stop(Phase::Ends);
                return Ok(Poll::Ready(()));
            }
            Err(error) => {
                let code = violation(&error).ok_or_else(|| io::Error::other(error))?;
                // The bytes that follow cannot be parsed.
                self.disconnect(code)?;
                return Ok(Poll::Ready(()));
            }
        };
        if let Some(messages) = &mut self.messages {
            // The service may have ended meanwhile.
            let _ = messages.send_item(message);
        }
        Ok(Poll::Ready(()))
    }

    /// Sends a close frame, and waits for no answer.
    fn disconnect(&mut self, code: CloseCode) -> io::Result<()> {
        self.close(CloseFrame { code, reason: "".into() })?;
        self.begin(Phase::Ends);
        Ok(())
    }

    /// Sends a close frame behind the events sent so far, and the messages of the service.
    fn close(&mut self, frame: CloseFrame) -> io::Result<()> {
        if self.phase != Phase::Open {
            return Ok(());
        }
        self.replies.close();
        while let Ok(message) = self.replies.try_recv() {
            self.reply(message)?;
        }
        self.stop(Phase::Closing);
        self.context.close(&mut self.socket, Some(frame)).map_err(io::Error::other)
    }

    /// Takes the stream back from the hub and the service.
    fn stop(&mut self, phase: Phase) {
        self.events = None;
        self.messages = None;
        self.replies.close();
        self.begin(phase);
    }

    fn begin(&mut self, phase: Phase) {
        (self.phase, self.since, self.is_asked) = (phase, Instant::now(), false);
    }

    /// Returns the time after `since` at which something has to be done.
    fn limit(&self) -> Duration {
        match self.phase {
            Phase::Open if !self.is_asked => self.idle / 2,
            Phase::Open => self.idle,
            _ => CLOSING,
        }
    }
}

/// Returns the code for a client that has violated the protocol or a limit; `None` if it has left.
fn violation(error: &Error) -> Option<CloseCode> {
    match error {
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
        Error::Protocol(_) => Some(CloseCode::Protocol),
        Error::Utf8(_) => Some(CloseCode::Invalid),
        Error::Capacity(_) => Some(CloseCode::Size),
        _ => None,
    }
}
