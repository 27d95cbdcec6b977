//! Unit tests of `owner`.

use super::*;

#[test]
fn names_of_different_pairs_differ() {
    let of = |owner: Owner, key| owner.name(key).unwrap();
    let names = [
        of("a".into(), "bc"),
        of("ab".into(), "c"),
        of("abc".into(), ""),
        of(Owner::anyone(), "abc"),
        of(Owner::anyone(), "\u{1}\0\0\0\0\0\0\0abc"),
    ];
    for (n, name) in names.iter().enumerate() {
        assert!(!names[n + 1..].contains(name), "{n}");
    }
}

#[test]
fn empty_owners_and_long_keys_have_no_name() {
    assert_eq!(Owner::from("").name("a"), Err(StreamError::NoOwner));
    assert_eq!(Owner::from(&[][..]).name("a"), Err(StreamError::NoOwner));
    assert!(Owner::from("a").name(&"k".repeat(KEY_MAX)).is_ok());
    assert_eq!(Owner::from("a").name(&"k".repeat(KEY_MAX + 1)), Err(StreamError::LongKey));
}

#[test]
fn debug_hides_the_owner() {
    assert_eq!(format!("{:?} {:?}", Owner::from("secret"), Owner::anyone()), "Owner(..) Owner(anyone)");
}
