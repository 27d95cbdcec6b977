//! A pending seek.

use std::fmt;
use std::io::{self, SeekFrom};
use std::task::{Context, Poll, ready};

use super::Metadata;
use super::file::File;
use super::read_ahead::Under;

pub(super) const OFFSET_MAX: u64 = i64::MAX as u64;

#[derive(Default)]
pub(super) struct PendingSeek {
    to: Option<SeekFrom>,
    look: Option<Under<Metadata>>,
}

impl fmt::Debug for PendingSeek {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PendingSeek").field(&self.to).finish()
    }
}

impl PendingSeek {
    pub(super) fn start(&mut self, to: SeekFrom) {
        *self = Self { to: Some(to), look: None };
    }

    /// Ends a seek that nobody completed. Its target must not become the position behind bytes that came later.
    pub(super) fn cancel(&mut self) {
        *self = Self::default();
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.to.is_some()
    }

    /// Returns the target of the seek from `position`, or `position` if none was requested. An error ends the seek.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, file: &File, position: u64) -> Poll<io::Result<u64>> {
        let to = match self.to {
            None => return Poll::Ready(Ok(position)),
            Some(SeekFrom::Start(to)) => Some(to),
            Some(SeekFrom::Current(by)) => position.checked_add_signed(by),
            Some(SeekFrom::End(by)) => {
                let look = self.look.get_or_insert_with(|| {
                    let file = file.clone();
                    Box::pin(async move { Ok(file.metadata().await?) })
                });
                let status = ready!(look.as_mut().poll(cx));
                *self = Self::default();
                status?.len().checked_add_signed(by)
            }
        };
        *self = Self::default();
        let outside =
            || io::Error::new(io::ErrorKind::InvalidInput, "the seek target is before the start or beyond 2^63 - 1");
        Poll::Ready(to.filter(|&to| to <= OFFSET_MAX).ok_or_else(outside))
    }
}
