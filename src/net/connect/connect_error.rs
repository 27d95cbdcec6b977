//! Error of a failed connection: destination, attempts, advice.

use std::fmt;
use std::io;
use std::time::Duration;

use super::race::Tried;

/// Error of a [`Connector`](crate::net::Connector): the destination, every address tried, and a remedy. The last error
/// is the
/// [`source`](std::error::Error::source).
///
/// `?` converts it to an [`io::Error`] of the same kind, whose [`get_ref`](io::Error::get_ref) is this error.
#[derive(Debug)]
pub struct ConnectError {
    to: String,
    why: Why,
}

#[derive(Debug)]
pub(in crate::net) enum Why {
    /// The URI is not a valid destination, with the reason.
    Uri(&'static str),
    Resolve(io::Error),
    /// No address has the family of the local address.
    Family,
    Refused(Tried),
    /// The time limit expired after these attempts.
    Timeout(Duration, Tried),
    Path(io::Error),
    /// An option has an invalid value.
    Option(io::Error),
}

impl ConnectError {
    pub(in crate::net) fn new(to: impl Into<String>, why: Why) -> Self {
        Self { to: to.into(), why }
    }

    /// Returns the kind of the last error: `TimedOut` on timeout, `InvalidInput` if the URI is not a valid destination.
    pub fn kind(&self) -> io::ErrorKind {
        match (&self.why, self.cause()) {
            (Why::Timeout(..), _) => io::ErrorKind::TimedOut,
            (_, Some(cause)) => cause.kind(),
            (Why::Family, None) => io::ErrorKind::AddrNotAvailable,
            (_, None) => io::ErrorKind::InvalidInput,
        }
    }

    /// Returns whether the time limit has expired, of the connector or of TCP.
    pub fn is_timed_out(&self) -> bool {
        self.kind() == io::ErrorKind::TimedOut
    }

    /// Returns whether no server listens at the last address or path: the connection was refused, or the socket file
    /// does not exist.
    pub fn is_refused(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
    }

    /// Returns the last error number, if the kernel reported one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.cause().and_then(io::Error::raw_os_error)
    }

    fn cause(&self) -> Option<&io::Error> {
        match &self.why {
            Why::Resolve(e) | Why::Path(e) | Why::Option(e) => Some(e),
            Why::Refused(tried) | Why::Timeout(_, tried) => tried.iter().rev().find_map(|(_, error)| error.as_ref()),
            Why::Uri(_) | Why::Family => None,
        }
    }

    fn advice(&self) -> &'static str {
        match (&self.why, self.kind()) {
            (Why::Uri(_), _) => "",
            (Why::Option(_), _) => "correct the option",
            (Why::Family, _) => "choose another local address",
            (Why::Resolve(_), _) => "check the name, and the resolver",
            (Why::Timeout(..), _) => "check that the host is up and that no firewall drops packets, or allow more time",
            (_, io::ErrorKind::ConnectionRefused) => "start the server, or check where it listens",
            (_, io::ErrorKind::NotFound) => "start the server, or check its path",
            (_, io::ErrorKind::PermissionDenied) => "let this user write to the socket file",
            (_, io::ErrorKind::AddrNotAvailable) => {
                "check the local address; without one, this machine is out of ports"
            }
            (_, io::ErrorKind::WouldBlock) => "the server does not accept fast enough",
            (_, io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                "check the routes of this machine"
            }
            _ => "check that the server runs and can be reached",
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot connect to {}", self.to)?;
        match &self.why {
            Why::Uri(what) => return write!(f, ": {what}"),
            Why::Resolve(_) => f.write_str(": the name was not resolved")?,
            Why::Family => f.write_str(": it has no address in the family of the local address")?,
            Why::Refused(tried) => list(f, tried)?,
            Why::Timeout(limit, tried) => {
                write!(f, ": no connection within {limit:?}")?;
                if tried.is_empty() { f.write_str(": the name was not resolved")? } else { list(f, tried)? }
            }
            Why::Path(_) | Why::Option(_) => {}
        }
        write!(f, "; {}", self.advice())
    }
}

fn list(f: &mut fmt::Formatter<'_>, tried: &Tried) -> fmt::Result {
    for (n, (addr, error)) in tried.iter().enumerate() {
        write!(f, "{} {addr}: ", if n > 0 { "," } else { ":" })?;
        match error {
            // The kind only: the last error is the source.
            Some(e) => write!(f, "{}", e.kind())?,
            None => f.write_str("no answer")?,
        }
    }
    Ok(())
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause().map(|cause| cause as _)
    }
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        Self::new(error.kind(), error)
    }
}
