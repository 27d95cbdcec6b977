//! Unit tests of `options`.

use super::*;
use crate::sys::path as sys_path;
use std::os::unix::fs::OpenOptionsExt;

/// Compares every combination with the standard library: the same are refused, and the others open alike.
#[test]
fn options_match_the_standard_library() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    for bits in 0..1 << 7 {
        let [read, write, append, truncate, create, create_new, is_there] =
            [0, 1, 2, 3, 4, 5, 6].map(|n| bits >> n & 1 == 1);
        let prepare = || {
            let _ = std::fs::remove_file(&path);
            if is_there {
                std::fs::write(&path, "old").unwrap();
            }
        };
        let mut std = std::fs::OpenOptions::new();
        std.read(read).write(write).append(append).truncate(truncate).create(create).create_new(create_new);
        prepare();
        let theirs = std.mode(0o600).open(&path);
        let left = std::fs::read(&path).ok();
        let ours = OpenOptions::new().read(read).write(write).append(append).truncate(truncate).create(create);
        let how = ours.create_new(create_new).mode(0o600).how();
        let is_refused = theirs.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::InvalidInput);
        assert_eq!(how.is_err(), is_refused, "{ours:?}");
        let Ok(how) = how else { continue };
        prepare();
        let ours = sys_path::open_blocking(sys_path::CWD, &sys_path::name(&path).unwrap(), &how);
        assert_eq!(ours.as_ref().err().map(|e| e.raw_os_error()), theirs.as_ref().err().map(|e| e.raw_os_error()));
        assert_eq!(std::fs::read(&path).ok(), left, "{how:?}");
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            assert_eq!(rustix::fs::fcntl_getfl(ours).unwrap(), rustix::fs::fcntl_getfl(theirs).unwrap());
        }
    }
}

#[test]
fn custom_flags_do_not_change_the_access() {
    let options = OpenOptions::new().read(true);
    assert_eq!(options.custom_flags(OFlags::RDWR.bits().cast_signed()).how(), options.how());
    assert_ne!(options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed()).how(), options.how());
}
