//! Unit tests of `tickets`.

use super::*;
use crate::server::tls::provider::provider;

fn file(dir: &tempfile::TempDir, rotate_every: Option<Duration>) -> TicketFile {
    TicketFile::new(dir.path().join("tickets.key"), rotate_every)
}

fn read(file: &TicketFile, purpose: &[u8]) -> Result<Tickets, TlsError> {
    file.read(&provider().unwrap(), purpose)
}

fn rotated(file: &mut TicketFile) -> Tickets {
    file.rotate_if_due(&provider().unwrap());
    read(file, b"").unwrap()
}

#[test]
fn a_rotation_keeps_the_previous_two_keys_and_other_purposes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut always = file(&dir, Some(Duration::ZERO));
    let first = rotated(&mut always);
    let sealed = first.encrypt(b"state").unwrap();
    for opened in [Some(b"state".to_vec()), Some(b"state".to_vec()), None] {
        let tickets = rotated(&mut always);
        assert_eq!(tickets.decrypt(&sealed), opened);
        assert_eq!(read(&file(&dir, None), b"other").unwrap().decrypt(&tickets.encrypt(b"new").unwrap()), None);
    }
    assert_eq!(fs::read(&always.path).unwrap().len(), SECRET * KEPT);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    #[cfg(unix)]
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&fs::metadata(&always.path).unwrap()) & 0o777, 0o600);
    // A key that is young stays.
    let before = fs::read(&always.path).unwrap();
    rotated(&mut file(&dir, Some(LIFETIME)));
    assert_eq!(fs::read(&always.path).unwrap(), before);
}

#[test]
fn keys_that_cannot_be_replaced_stay_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let mut rotating = file(&dir, Some(Duration::ZERO));
    let sealed = rotated(&mut rotating).encrypt(b"state").unwrap();
    // The name of the new file is taken, also for root.
    let taken = dir.path().join(format!("tickets.key.{}.new", std::process::id()));
    fs::create_dir(&taken).unwrap();
    assert!(rotating.is_due());
    assert!(rotated(&mut rotating).decrypt(&sealed).is_some());
    assert!(!rotating.is_due(), "tried at each check");
    fs::remove_dir(&taken).unwrap();
    rotated(&mut rotating);
    assert!(rotating.is_due());
    assert_eq!(fs::read(&rotating.path).unwrap().len(), SECRET * 2);
}

#[cfg(unix)]
#[test]
fn a_file_that_a_rotation_has_left_gets_no_keys() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let mut always = file(&dir, Some(Duration::ZERO));
    let [left, other] =
        [format!("tickets.key.{}.new", std::process::id()), "other".into()].map(|name| dir.path().join(name));
    fs::write(&left, "left").unwrap();
    fs::set_permissions(&left, fs::Permissions::from_mode(0o644)).unwrap();
    rotated(&mut always);
    assert_eq!(fs::metadata(&always.path).unwrap().mode() & 0o777, 0o600);
    fs::write(&other, "other").unwrap();
    symlink(&other, &left).unwrap();
    rotated(&mut always);
    assert_eq!(fs::read(&other).unwrap(), b"other");
    assert!(fs::symlink_metadata(&always.path).unwrap().is_file());
}

#[test]
fn changed_cut_and_old_tickets_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tickets = rotated(&mut file(&dir, Some(LIFETIME)));
    let sealed = tickets.encrypt(b"state").unwrap();
    assert_ne!(sealed, tickets.encrypt(b"state").unwrap(), "a nonce was used twice");
    for at in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[at] ^= 1;
        assert_eq!(tickets.decrypt(&changed), None, "byte {at}");
        assert_eq!(tickets.decrypt(&sealed[..at]), None, "cut at {at}");
    }
    let key = &tickets.keys[0];
    for (issued, accepted) in [(0, true), (LIFETIME.as_secs() - 1, true), (LIFETIME.as_secs() + 1, false)] {
        let old = key.seal([issued as u8; NONCE_LEN], now() - Duration::from_secs(issued), b"state").unwrap();
        assert_eq!(tickets.decrypt(&old).is_some(), accepted, "{issued} s");
    }
}

#[test]
fn a_file_of_another_length_or_none_is_an_error_with_its_path() {
    let dir = tempfile::tempdir().unwrap();
    let read_only = file(&dir, None);
    assert!(matches!(read(&read_only, b""), Err(TlsError::Read(path, _)) if path == read_only.path));
    for len in [0, 1, SECRET - 1, SECRET + 1, SECRET * (SECRETS_MAX + 1)] {
        fs::write(&read_only.path, vec![7; len]).unwrap();
        let wrong = read(&read_only, b"").unwrap_err().to_string();
        assert!(wrong.contains(&format!("tickets.key: {len} bytes: expected")), "{wrong}");
    }
}
