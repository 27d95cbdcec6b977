//! Unit tests of `sizes`.

use super::super::id::Id;
use super::*;
use millstream::sse::Event;

fn entries(bytes: &[usize]) -> Vec<Entry> {
    bytes.iter().map(|&bytes| Entry { id: Id::ZERO, stamp: None, event: Event::new(), bytes }).collect()
}

#[test]
fn pages_have_about_as_many_bytes_as_are_meant() {
    let sizes = Sizes::new();
    assert_eq!(sizes.plan(1 << 20), Plan { entries: PAGE, reply: (4 << 20) + MORE, is_large: false });
    sizes.learn(&entries(&[50_000, 50_000]));
    assert_eq!(sizes.plan(1 << 20).entries, 20, "larger entries count at once");
    sizes.learn(&entries(&[100; 20]));
    assert_eq!(sizes.plan(1 << 20).entries, 27, "smaller entries count gradually");
    (0..50).for_each(|_| sizes.learn(&entries(&[100; 20])));
    assert_eq!(sizes.plan(1 << 20).entries, PAGE);
    sizes.learn(&[]);
    assert_eq!(sizes.plan(0).entries, 1);
    sizes.learn(&entries(&[0]));
    assert_eq!(sizes.plan(usize::MAX), Plan { entries: PAGE, reply: REPLY_MAX, is_large: false });
}

#[test]
fn what_was_refused_is_asked_for_one_by_one() {
    let sizes = Sizes::new();
    for bytes in [0, 1 << 10, 256 << 10, 1 << 20] {
        let plan = sizes.plan(bytes);
        assert!(!plan.is_large, "{bytes}");
        sizes.refused(plan);
        assert_eq!(sizes.plan(bytes), Plan { entries: 1, reply: REPLY_MAX, is_large: true });
        (0..50).for_each(|_| sizes.learn(&entries(&[100])));
    }
}
