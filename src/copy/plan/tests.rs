//! Unit tests of `plan`.

use super::*;
use Kind::{File, Other, Pipe, Socket};

const KINDS: [Kind; 4] = [File, Pipe, Socket, Other];
const BOTH: [bool; 2] = [false, true];

fn all() -> impl Iterator<Item = Facts> {
    let lefts = [0, 1, SPLICE_MIN - 1, SPLICE_MIN, u64::MAX];
    let pairs = KINDS.into_iter().flat_map(|from| KINDS.map(|to| (from, to)));
    let more = move |(from, to)| {
        let some = lefts.into_iter().flat_map(|left| BOTH.map(|whole| (left, whole)));
        let some = some.flat_map(|(left, whole)| BOTH.map(|flood| (left, whole, flood)));
        some.flat_map(move |(left, whole, flood)| {
            (0..32).map(move |set| Facts { from, to, left, whole, flood, without: Paths(set) })
        })
    };
    pairs.flat_map(more)
}

#[test]
fn every_row_of_the_table_with_nothing_refused() {
    for facts in all().filter(|facts| facts.without == Paths::default()) {
        let expected = match (facts.from, facts.to, facts.left, facts.whole, facts.flood) {
            (File, File, 1.., true, _) => CopyPath::Clone,
            (File, File, 1.., false, _) => CopyPath::CopyFileRange,
            (File, Pipe, 1.., ..) => CopyPath::Sendfile,
            (File, Socket, 1..SPLICE_MIN, ..) => CopyPath::Sendfile,
            (File, Socket, SPLICE_MIN.., ..) => CopyPath::Splice,
            (Pipe | Socket, File | Pipe | Socket, _, _, true) => CopyPath::Splice,
            _ => CopyPath::Pump,
        };
        assert_eq!(plan(&facts), expected, "{facts:?}");
    }
}

#[test]
fn what_was_refused_is_not_taken_and_there_is_always_a_way() {
    for facts in all() {
        let way = plan(&facts);
        assert!(way == CopyPath::Pump || !facts.without.has(way), "{facts:?}: {way}");
    }
}

#[test]
fn refusals_lead_down_the_row_step_by_step() {
    for facts in all().filter(|facts| facts.without == Paths::default()) {
        let (mut facts, mut ways) = (facts, Vec::new());
        loop {
            let way = plan(&facts);
            ways.push(way);
            if way == CopyPath::Pump {
                break;
            }
            facts.without = facts.without.with(way);
        }
        let expected: &[CopyPath] = match (ways[0], facts.to) {
            (CopyPath::Clone, _) => &[CopyPath::Clone, CopyPath::CopyFileRange, CopyPath::Pump],
            (CopyPath::Sendfile, _) => &[CopyPath::Sendfile, CopyPath::Splice, CopyPath::Pump],
            (CopyPath::Splice, Socket) if facts.from == File => &[CopyPath::Splice, CopyPath::Sendfile, CopyPath::Pump],
            (CopyPath::CopyFileRange, _) => &[CopyPath::CopyFileRange, CopyPath::Pump],
            (CopyPath::Splice, _) => &[CopyPath::Splice, CopyPath::Pump],
            (CopyPath::Pump, _) => &[CopyPath::Pump],
        };
        assert_eq!(ways, expected, "{facts:?}");
    }
}

#[test]
fn a_set_has_what_was_put_in() {
    for path in CopyPath::ALL {
        let only = Paths::default().with(path);
        assert!(CopyPath::ALL.iter().all(|&other| only.has(other) == (other == path)), "{path}");
    }
}
