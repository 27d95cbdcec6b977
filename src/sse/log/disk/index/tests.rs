//! Unit tests of `index`.

use super::*;

#[test]
fn entries_are_sparse_and_found() {
    let mut index = Index::default();
    assert_eq!(index.find(5), (0, 0));
    for event in 0..100 {
        index.add(event, event * STRIDE / 4);
    }
    assert_eq!(index.0.len(), 25);
    assert_eq!(index.find(0), (0, 0));
    assert_eq!(index.find(3), (0, 0));
    assert_eq!(index.find(4), (4, STRIDE));
    assert_eq!(index.find(1000), (96, 24 * STRIDE));
}

#[test]
fn a_file_is_read_only_if_it_is_whole_and_of_this_segment() {
    let mut index = Index::default();
    (0..10).for_each(|event| index.add(event, event * STRIDE));
    let segment = 10 * STRIDE;
    let file = index.encode(segment);
    assert!(file.len() <= Index::len_max(segment));
    assert_eq!(Index::decode(&file, segment), Some(index));
    assert_eq!(Index::decode(&file, segment + 1), None);
    for len in 0..file.len() {
        assert_eq!(Index::decode(&file[..len], segment), None, "{len}");
        let mut wrong = file.clone();
        wrong[len] ^= 1;
        assert_eq!(Index::decode(&wrong, segment), None, "{len}");
    }
}

#[test]
fn entries_that_no_segment_has_are_refused() {
    let decoded = |pairs: &[(u32, u32)]| Index::decode(&Index(pairs.to_vec()).encode(100), 100).is_some();
    assert!(decoded(&[]) && decoded(&[(0, 0), (1, 50), (7, 99)]));
    assert!(!decoded(&[(0, 0), (1, 100)]), "behind the end");
    assert!(!decoded(&[(0, 0), (1, 50), (1, 60)]) && !decoded(&[(1, 50), (2, 50)]), "not in order");
}

#[test]
fn the_length_of_any_segment_gives_one_of_the_index() {
    assert_eq!(Index::len_max(0), 28);
    assert!(Index::len_max(i64::MAX as u64) > 1 << 50);
}
