//! State of one end in the engine.

use std::io;
use std::task::{Context, Poll, ready};

use crate::copy::ends::{End, Open, Settling};
use crate::copy::plan::Kind;
use crate::fs::Step;

#[derive(Debug)]
pub(super) enum Side {
    Unknown(Settling),
    File(Open),
    Plain(Kind),
}

impl Default for Side {
    fn default() -> Self {
        Self::Unknown(Settling::default())
    }
}

impl Side {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Unknown(_) => Kind::Other,
            Self::File(_) => Kind::File,
            Self::Plain(kind) => *kind,
        }
    }

    pub(super) fn file(&self) -> Option<&Open> {
        match self {
            Self::File(open) => Some(open),
            _ => None,
        }
    }

    pub(super) fn advance(&mut self, n: u64) {
        if let Self::File(open) = self {
            open.advance(n);
        }
    }

    pub(super) fn poll_open(
        &mut self,
        cx: &mut Context<'_>,
        end: &mut End<'_>,
        writes: bool,
    ) -> Poll<Result<(), (Step, io::Error)>> {
        if let Self::Unknown(settling) = self {
            *self = match end {
                End::File(handle) => {
                    let open = ready!(handle.poll_open(cx, settling, writes))?;
                    open.map_or(Self::Plain(Kind::Other), Self::File)
                }
                End::Stream(stream) => Self::Plain(stream.kind()),
                End::Other => Self::Plain(Kind::Other),
            };
        }
        Poll::Ready(Ok(()))
    }

    pub(super) fn tell(&mut self, end: End<'_>) -> io::Result<()> {
        match (self, end) {
            (Self::File(open), End::File(mut handle)) => handle.tell(open),
            _ => Ok(()),
        }
    }
}
