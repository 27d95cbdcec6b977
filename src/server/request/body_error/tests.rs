//! Unit tests of `body_error`.

use super::*;

#[test]
fn an_io_error_has_a_kind_and_causes_the_same_status() {
    let late = || Cause::TooSlow(Duration::from_secs(30));
    for grpc in [false, true] {
        for (cause, kind, status) in
            [(Cause::TooLarge(7), io::ErrorKind::FileTooLarge, 413), (late(), io::ErrorKind::TimedOut, 408)]
        {
            let error = io::Error::from(BodyError::new(cause, grpc));
            assert_eq!((error.kind(), status_of(&error).unwrap().as_u16()), (kind, status));
        }
    }
}

#[test]
fn no_level_repeats_the_text_of_its_source() {
    for grpc in [false, true] {
        for (cause, status) in [(Cause::TooLarge(7), 413), (Cause::TooSlow(Duration::from_secs(30)), 408)] {
            let error = BoxError::from(BodyError::new(cause, grpc));
            assert_eq!(status_of(&*error).unwrap(), status);
            let repeats = error.source().is_some_and(|source| error.to_string().contains(&source.to_string()));
            assert!(!repeats, "{error}");
        }
    }
}
