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
mod tests {
    use super::*;
    use crate::fs::File;
    use std::time::Duration;

    #[test]
    fn tags_differ_when_contents_may() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        let look = || *File::from_std(std::fs::File::open(&path).unwrap()).unwrap().opened();
        std::fs::write(&path, "same").unwrap();
        let before = look();
        assert_eq!(before.etag(), look().etag());
        std::fs::write(&path, "more!").unwrap();
        assert_ne!(before.etag(), look().etag());
        let tag = before.etag();
        let tag = tag.to_str().unwrap();
        assert!(tag.starts_with('"') && tag.ends_with('"'), "{tag}");
        let tags = [Tag::Changed, Tag::Modified].map(|tag| ["", ".gz"].map(|of| tag.of(&before, of)));
        assert_eq!(tags.as_flattened().iter().collect::<std::collections::HashSet<_>>().len(), 4);
        assert_eq!(tags[0][0], before.etag());
    }

    #[test]
    fn times_can_be_represented_in_http() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, "x").unwrap();
        let with = |modified: SystemTime| {
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            file.set_modified(modified).unwrap();
            File::from_std(file).unwrap().opened().last_modified()
        };
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(with(epoch + Duration::from_millis(5900)), Some(epoch + Duration::from_secs(5)));
        assert_eq!(with(epoch - Duration::from_secs(5)), None);
        let future = with(SystemTime::now() + Duration::from_secs(1 << 20)).unwrap();
        assert!(future <= SystemTime::now());
    }
}
