//! Validators of responses from a file: entity tag and time (RFC 9110 §8.8).

use std::fmt::Write;
use std::time::SystemTime;

use http::HeaderValue;

use super::ranges::whole_seconds;
use crate::fs::Metadata;

impl Metadata {
    /// Returns a strong entity tag ([RFC 9110 §8.8.3](https://www.rfc-editor.org/rfc/rfc9110#section-8.8.3)), including
    /// quotes, made of the length and, in nanoseconds, the times of the last change of the contents (`mtime`) and of
    /// the inode (`ctime`). No program can set the `ctime`, so a file that is rewritten in place gets another tag even
    /// if its length stays the same and its `mtime` is restored.
    pub fn etag(&self) -> HeaderValue {
        Tag::default().of(self, "")
    }

    /// Returns the time of the last change of the contents, in whole seconds and never in the future, as
    /// `Last-Modified` requires. `None` if the file system reports a time before 1970 or after 9999, which HTTP cannot
    /// represent.
    pub fn last_modified(&self) -> Option<SystemTime> {
        whole_seconds(self.modified()?)
    }
}

/// The inputs of entity tags. The inode number is not among them, because it does not depend on the contents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tag {
    #[default]
    Changed,
    /// The length and `mtime`, which are equal on machines with the same files.
    Modified,
}

impl Tag {
    /// Returns the tag of a file. `representation` distinguishes the representations of one resource.
    pub(crate) fn of(self, file: &Metadata, representation: &str) -> HeaderValue {
        let mut tag = String::with_capacity(64);
        let (len, modified) = (file.len(), file.modified_nanos());
        let written = match self {
            Self::Changed => write!(tag, "\"{len:x}-{modified:x}-{:x}{representation}\"", file.changed_nanos()),
            Self::Modified => write!(tag, "\"{len:x}-{modified:x}{representation}\""),
        };
        written.expect("writing to a string does not fail");
        HeaderValue::try_from(tag).expect("internal: quotes, digits, dashes and a suffix make a header value")
    }
}

#[cfg(test)]
mod tests;
