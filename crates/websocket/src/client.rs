//! A client, as its service sees it.

use bytes::Bytes;
use tokio::sync::mpsc;

/// A message of a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// A text.
    Text(String),
    /// Bytes.
    Binary(Bytes),
}

/// The client of a WebSocket, for the function of
/// [`WebSocketHub::subscribe_with`](crate::WebSocketHub::subscribe_with).
#[derive(Debug)]
pub struct Client {
    messages: mpsc::Receiver<Message>,
    sender: ClientSender,
}

/// Sends messages to one client; from [`Client::sender`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientSender(mpsc::Sender<Message>);

/// The WebSocket is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed {}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the WebSocket of the client is closed")
    }
}

impl std::error::Error for Closed {}

/// Messages to a client that wait for room in its socket.
const REPLIES: usize = 16;

/// The other ends of a [`Client`].
#[derive(Debug)]
pub(crate) struct ClientEnds {
    pub(crate) messages: mpsc::Sender<Message>,
    pub(crate) replies: mpsc::Receiver<Message>,
}

impl Client {
    pub(crate) fn new() -> (Self, ClientEnds) {
        // The next message is read from the socket once the service has taken this one.
        let (to_service, messages) = mpsc::channel(1);
        let (sender, replies) = mpsc::channel(REPLIES);
        (Self { messages, sender: ClientSender(sender) }, ClientEnds { messages: to_service, replies })
    }

    /// Waits for the next message of the client. Returns `None` once no more can come: the client has closed the
    /// WebSocket or left, or the events have ended.
    ///
    /// Until it is called, the messages of the client wait in its socket. Events are sent meanwhile; pings of the client
    /// are answered once the message before them was taken.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no message.
    pub async fn next(&mut self) -> Option<Message> {
        self.messages.recv().await
    }

    /// Returns a sender of messages to this client alone. They stand between events.
    pub fn sender(&self) -> ClientSender {
        self.sender.clone()
    }

    /// As [`ClientSender::send`].
    ///
    /// # Errors
    ///
    /// Fails if the WebSocket is closed.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the message is not sent.
    pub async fn send(&self, message: Message) -> Result<(), Closed> {
        self.sender.send(message).await
    }
}

impl ClientSender {
    /// Sends a message. Waits while 16 wait for room in the socket of the client.
    ///
    /// # Errors
    ///
    /// Fails if the WebSocket is closed. A message that was accepted is sent before the close frame of this side, and may
    /// be lost with its connection, or if the client closes the WebSocket.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it is ready, the message is not sent.
    pub async fn send(&self, message: Message) -> Result<(), Closed> {
        self.0.send(message).await.map_err(|_| Closed {})
    }
}
