//! Unit tests of `respond`.

use super::*;

#[test]
fn errors_tell_no_more_than_they_must() {
    for (errno, expected) in [
        (Errno::NOENT, 404),
        (Errno::NOTDIR, 404),
        (Errno::LOOP, 404),
        (Errno::XDEV, 404),
        (Errno::ACCESS, 404),
        (Errno::PERM, 404),
        (Errno::NAMETOOLONG, 404),
        (Errno::NXIO, 404),
        (Errno::ILSEQ, 404),
        (Errno::MFILE, 503),
        (Errno::NFILE, 503),
        (Errno::AGAIN, 503),
        (Errno::IO, 500),
        (Errno::STALE, 500),
    ] {
        assert_eq!(from_error(&errno.into()).status(), expected, "{errno:?}");
    }
    assert_eq!(from_error(&io::ErrorKind::PermissionDenied.into()).status(), 404);
    assert_eq!(from_error(&io::Error::other("no runtime")).status(), 500);
}
