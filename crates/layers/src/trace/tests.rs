//! Unit tests of `trace`.

use super::*;
use proptest::prelude::*;

const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[test]
fn valid_values_are_read() {
    let given: TraceParent = GIVEN.parse().unwrap();
    assert_eq!((given.trace_id(), given.parent_id()), (0x4bf92f3577b34da6a3ce929d0e0e4736, 0x00f067aa0ba902b7));
    assert!(given.sampled() && !given.random());
    assert_eq!(given.to_string(), GIVEN);
    let later = [GIVEN.replacen("00", "01", 1), GIVEN.replacen("00", "fe", 1) + "-more"];
    for later in &later {
        assert_eq!(later.parse(), Ok(given), "{later}");
    }
    let child = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff".parse::<TraceParent>().unwrap().child();
    assert_eq!((child.trace_id(), child.flags), (given.trace_id(), 3));
    assert_ne!(child.parent_id(), given.parent_id());
}

#[test]
fn invalid_values_are_not_read() {
    for wrong in [
        "".to_owned(),
        GIVEN[..54].to_owned(),
        GIVEN.to_owned() + "-",
        GIVEN.to_owned() + "-more",
        GIVEN.to_owned() + " ",
        GIVEN.to_uppercase(),
        GIVEN.replacen("00", "ff", 1),
        GIVEN.replacen("00", "0g", 1),
        GIVEN.replacen("00", "01", 1) + "more",
        GIVEN.replacen("4bf92f", "4bf92g", 1),
        GIVEN.replace('-', "_"),
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".to_owned(),
        "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01".to_owned(),
    ] {
        assert_eq!(wrong.parse::<TraceParent>(), Err(NoTraceParent), "{wrong}");
    }
}

#[test]
fn the_share_that_is_sampled_is_about_what_was_asked_for() {
    let sampled = |threshold| (0..20_000).filter(|_| TraceParent::start(threshold).sampled()).count();
    assert_eq!((sampled(0), sampled(1 << 56)), (20_000, 0));
    // Ten standard deviations.
    assert!((4400..5600).contains(&sampled((1 << 54) * 3)));
    assert!(TraceParent::start(0).random());
}

proptest! {
    #[test]
    fn reading_writes_and_never_panics(text in "(00|01|[0-9a-f]{2})-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.{0,9})?|.{0,70}") {
        if let Ok(read) = text.parse::<TraceParent>() {
            prop_assert_eq!(&read.to_string()[2..], &text[2..LEN]);
            prop_assert_eq!(read.to_header(), read.to_string());
        }
    }
}
