//! CopyError of a copy: the failed step, the end, and the progress.

use std::fmt;
use std::io;

use super::CopyReport;

/// CopyError of a copy: the failed step, the path or peer if known, and the progress.
///
/// `?` turns it into an [`io::Error`] of the same kind, whose [`get_ref`](io::Error::get_ref) is this error, with the
/// error number and the reports.
#[derive(Debug)]
pub struct CopyError(Box<Inner>);

#[derive(Debug)]
struct Inner {
    step: CopyStep,
    end: Option<String>,
    direction: Option<Direction>,
    report: CopyReport,
    other: Option<CopyReport>,
    source: io::Error,
}

/// The step that failed. Displayed as a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CopyStep {
    /// Determining the start position in a file, and finishing its pending operations.
    Open,
    /// Reading from the source.
    Read,
    /// Writing to the target.
    Write,
    /// Copying from file to file; the failed side is unknown.
    Move,
    /// Flushing the target.
    Flush,
    /// Shutting down the target after the end of the source.
    Shutdown,
    /// Starting work on the runtime, which does not exist or is shutting down.
    Start,
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
    pub(super) fn new(step: CopyStep, end: Option<String>, report: CopyReport, source: io::Error) -> Self {
        Self(Box::new(Inner { step, end, direction: None, report, other: None, source }))
    }

    pub(super) fn in_direction(mut self, direction: Direction, other: CopyReport) -> Self {
        self.0.direction = Some(direction);
        self.0.other = Some(other);
        self
    }

    /// Returns the failed step.
    pub fn step(&self) -> CopyStep {
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

    /// Returns the error number, if the kernel returned one.
    pub fn raw_os_error(&self) -> Option<i32> {
        self.0.source.raw_os_error()
    }
}

impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { step, end, direction, report, source, .. } = &*self.0;
        write!(f, "copy")?;
        if let Some(direction) = direction {
            write!(f, " {direction}")?;
        }
        write!(f, ": {step}")?;
        if let Some(end) = end {
            write!(f, " {end}")?;
        }
        write!(f, ": {source}; after {} bytes", report.bytes)
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

impl fmt::Display for CopyStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "find the position of",
            Self::Read => "read from",
            Self::Write => "write to",
            Self::Move => "move bytes to",
            Self::Flush => "flush",
            Self::Shutdown => "shut down",
            Self::Start => "start the operation",
        })
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
        let error = CopyError::new(CopyStep::Read, Some("127.0.0.1:9".into()), so_far(7), reset);
        assert_eq!(
            error.to_string(),
            "copy: read from 127.0.0.1:9: Connection reset by peer (os error 104); after 7 bytes"
        );
        let error = io::Error::from(error.in_direction(Direction::BToA, so_far(9)));
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        assert!(error.to_string().starts_with("copy from b to a: read from 127.0.0.1:9: "), "{error}");
        let inner = error.get_ref().unwrap().downcast_ref::<CopyError>().unwrap();
        assert_eq!((inner.step(), inner.raw_os_error(), inner.end()), (CopyStep::Read, Some(104), Some("127.0.0.1:9")));
        assert_eq!((inner.direction(), inner.report().bytes), (Some(Direction::BToA), 7));
        assert_eq!(inner.other_report().unwrap().bytes, 9);
        assert_eq!(inner.source().unwrap().to_string(), "Connection reset by peer (os error 104)");
    }
}
