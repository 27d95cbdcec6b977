//! Errors of the exchange with another process.

use std::fmt;
use std::io;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Reason why the exchange of frames has ended. The connection to the other process is then closed.
#[derive(Debug)]
pub struct SharedError(Kind);

#[derive(Debug)]
enum Kind {
    Violation(&'static str),
    Ended,
    Silent,
    Body(BoxError),
    Io(&'static str, io::Error),
}

impl SharedError {
    pub(crate) fn violation(what: &'static str) -> Self {
        Self(Kind::Violation(what))
    }

    pub(crate) fn ended() -> Self {
        Self(Kind::Ended)
    }

    pub(crate) fn silent() -> Self {
        Self(Kind::Silent)
    }

    pub(crate) fn body(error: BoxError) -> Self {
        Self(Kind::Body(error))
    }

    /// The failure of a step, such as "send a frame".
    pub(crate) fn io(step: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| match error.kind() {
            // The other end was closed, with unread messages or without.
            io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Self(Kind::Ended),
            _ => Self(Kind::Io(step, error)),
        }
    }

    /// Returns whether the other process has broken the protocol.
    pub fn is_violation(&self) -> bool {
        matches!(self.0, Kind::Violation(_))
    }

    /// Returns whether the connection ended before the end of the frames: the other process has died, or has given up.
    pub fn is_ended(&self) -> bool {
        matches!(self.0, Kind::Ended)
    }

    /// Returns whether the other process sent nothing, or returned no credit, for too long.
    pub fn is_timeout(&self) -> bool {
        matches!(self.0, Kind::Silent)
    }

    /// Returns whether the body that was sent has failed. The source is its error.
    pub fn is_body(&self) -> bool {
        matches!(self.0, Kind::Body(_))
    }
}

impl fmt::Display for SharedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Violation(what) => write!(f, "the other process breaks the protocol of shared frames: {what}"),
            Kind::Ended => f.write_str("the other process ended the connection before the end of the frames"),
            Kind::Silent => f.write_str("the other process has been silent for too long"),
            Kind::Body(_) => f.write_str("the body that is sent to the other process failed"),
            Kind::Io(step, _) => write!(f, "shared frames: cannot {step}"),
        }
    }
}

impl std::error::Error for SharedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Body(error) => Some(&**error),
            Kind::Io(_, error) => Some(error),
            Kind::Violation(_) | Kind::Ended | Kind::Silent => None,
        }
    }
}

/// `InvalidData`, `UnexpectedEof`, `TimedOut`, or the kind of the source.
impl From<SharedError> for io::Error {
    fn from(error: SharedError) -> Self {
        let kind = match &error.0 {
            Kind::Violation(_) => io::ErrorKind::InvalidData,
            Kind::Ended => io::ErrorKind::UnexpectedEof,
            Kind::Silent => io::ErrorKind::TimedOut,
            Kind::Body(_) => io::ErrorKind::Other,
            Kind::Io(_, error) => error.kind(),
        };
        Self::new(kind, error)
    }
}
