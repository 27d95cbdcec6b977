//! Unit tests of `contents`.

use std::sync::Arc;

use super::super::super::budget::Budget;
use super::*;

#[test]
fn the_order_is_that_of_the_query() {
    let at = |seconds| SystemTime::UNIX_EPOCH.checked_add(std::time::Duration::from_secs(seconds));
    let item = |name: &'static str, is_directory, size, seconds| {
        (name, Item { at: 0, len: 0, is_directory, facts: Some(Facts { size, modified: at(seconds) }) })
    };
    for (query, expected) in [
        ("", "src Zoo a B c"),
        ("sort=name&order=desc", "Zoo src c B a"),
        ("sort=size", "src Zoo B c a"),
        ("x=1&sort=size&order=desc", "Zoo src a c B"),
        ("sort=modified", "Zoo src c a B"),
        ("sort=nonsense&order=nonsense", "src Zoo a B c"),
    ] {
        let mut items = [
            item("c", false, 2, 1),
            item("Zoo", true, 9, 0),
            item("B", false, 1, 3),
            item("a", false, 3, 2),
            item("src", true, 7, 5),
        ];
        let order = Order::of(query);
        items.sort_unstable_by(|a, b| order.compare((a.0.as_bytes(), &a.1), (b.0.as_bytes(), &b.1)));
        assert_eq!(items.map(|(name, _)| name).join(" "), expected, "{query}");
    }
}

#[test]
fn a_reading_has_the_share_that_it_needs_and_ends_without_one() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..1000 {
        std::fs::write(dir.path().join(format!("{n:0>100}")), "").unwrap();
    }
    let root = Root::open_dir(dir.path()).unwrap();
    let read = |budget: u64| {
        let budget = Arc::new(Budget::new(budget));
        let mut share = Budget::take(&budget, 0).unwrap();
        let contents = Contents::read_blocking(&root, b"", Dots::None, Order::of(""), &mut share);
        let left = (0..).find(|&bytes| Budget::take(&budget, bytes + 1).is_none()).unwrap();
        contents.map(|contents| (contents.len(), left))
    };
    let all = 1000 * (100 + (size_of::<Item>() + size_of::<u32>()) as u64);
    let (len, left) = read(2 * all).unwrap();
    // A name does not begin at the end of a piece.
    assert!(len == 1000 && (2 * all - left - all) < 100, "{len} items, {left} of {} bytes are left", 2 * all);
    assert_eq!(read(all - 1).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}
