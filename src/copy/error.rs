//! Error of a copy: the failed step, the end, and the progress.

use std::fmt;
use std::io;

use super::CopyReport;
use crate::fs::{self, Step};

/// Error of a copy: the failed step, the path or peer if known, and the progress. The cause is the
/// [`source`](std::error::Error::source).
///
/// `?` turns it into an [`io::Error`] of the same kind, whose [`get_ref`](io::Error::get_ref) is this error, with the
/// error number and the reports.
#[derive(Debug)]
pub struct CopyError(Box<CopyErrorInner>);

#[derive(Debug)]
struct CopyErrorInner {
    step: Step,
    end: Option<String>,
    direction: Option<Direction>,
    report: CopyReport,
    other: Option<CopyReport>,
    source: io::Error,
}

/// A direction of [`copy_bidirectional`](super::copy_bidirectional).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Direction {
    /// From the first argument to the second.
    AToB,
    /// From the second argument to the first.
    BToA,
}

impl CopyError {
    pub(super) fn new(step: Step, end: Option<String>, report: CopyReport, source: io::Error) -> Self {
        let source = match end {
            // The error of a file repeats its path.
            Some(_) => source.downcast().map_or_else(|other| other, fs::Error::into_cause),
            None => source,
        };
        Self(Box::new(CopyErrorInner { step, end, direction: None, report, other: None, source }))
    }

    pub(super) fn in_direction(mut self, direction: Direction, other: CopyReport) -> Self {
        self.0.direction = Some(direction);
        self.0.other = Some(other);
        self
    }

    /// Returns the failed step.
    pub fn step(&self) -> Step {
        self.0.step
    }

    /// Returns the path of the file or the address of the peer that failed, if known.
    pub fn end(&self) -> Option<&str> {
        self.0.end.as_deref()
    }

    /// Returns the failed direction; `None` for a copy in one direction.
    pub fn direction(&self) -> Option<Direction> {
        self.0.direction
    }

    /// Returns the report of the failed direction. Bytes that were read and not written are not counted.
    pub fn report(&self) -> CopyReport {
        self.0.report
    }

    /// Returns the report of the other direction; `None` for a copy in one direction.
    pub fn other_report(&self) -> Option<CopyReport> {
        self.0.other
    }

    /// Returns the kind of the underlying error.
    pub fn kind(&self) -> io::ErrorKind {
        self.0.source.kind()
    }

    /// Returns whether the disk of the target, or the quota of the user, has no space left.
    pub fn is_no_space(&self) -> bool {
        matches!(self.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
    }

    /// Returns the error number, if the kernel returned one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.raw_os_error()
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CopyErrorInner { step, end, direction, report, .. } = &*self.0;
        write!(f, "copy")?;
        if let Some(direction) = direction {
            write!(f, " {direction}")?;
        }
        if let Some(end) = end {
            write!(f, ": {end}")?;
        }
        write!(f, ": {step}; after {} bytes", report.bytes)
    }
}

impl std::error::Error for CopyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0.source)
    }
}

impl From<CopyError> for io::Error {
    fn from(error: CopyError) -> Self {
        Self::new(error.kind(), error)
    }
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AToB => "from a to b",
            Self::BToA => "from b to a",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn everything_survives_the_question_mark() {
        let so_far = |bytes| CopyReport { bytes, ..CopyReport::default() };
        let reset = io::Error::from_raw_os_error(104);
        let error = CopyError::new(Step::Read, Some("127.0.0.1:9".into()), so_far(7), reset);
        assert_eq!(error.to_string(), "copy: 127.0.0.1:9: read; after 7 bytes");
        assert!(!error.is_no_space());
        let error = io::Error::from(error.in_direction(Direction::BToA, so_far(9)));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert_eq!(error.to_string(), "copy from b to a: 127.0.0.1:9: read; after 7 bytes");
        let inner = error.get_ref().unwrap().downcast_ref::<CopyError>().unwrap();
        assert_eq!((inner.step(), inner.raw_os_error(), inner.end()), (Step::Read, Some(104), Some("127.0.0.1:9")));
        assert_eq!((inner.direction(), inner.report().bytes), (Some(Direction::BToA), 7));
        assert_eq!(inner.other_report().unwrap().bytes, 9);
        assert_eq!(inner.source().unwrap().to_string(), "Connection reset by peer (os error 104)");
    }
}
