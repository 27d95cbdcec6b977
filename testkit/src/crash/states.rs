//! The states that a crash may leave: the sets of changes that may be on the disk after each step.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::image::{Change, Image, SECTOR};
use super::tree::Tree;

/// Maximum number of open changes of which all sets are tried.
const FEW: usize = 7;
/// Maximum number of changes that are left out, or kept, one by one.
const SINGLE: usize = 48;
/// Number of random sets after each step.
const RANDOM: usize = 24;

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Step {
    Changed(Vec<Change>),
    /// A file or directory was synced; if `data_only`, without its permissions.
    Synced {
        node: u64,
        data_only: bool,
    },
    Confirmed(u64),
}

/// The changes of a [`RecordedDisk`](super::RecordedDisk), in order.
#[derive(Clone, PartialEq, Eq)]
pub struct History {
    pub(super) base: Image,
    pub(super) steps: Vec<Step>,
}

/// The state of a disk after a crash.
#[derive(Debug)]
pub struct Crash<'a> {
    /// The last number that was confirmed before it.
    pub confirmed: u64,
    pub tree: Tree,
    steps: &'a [Step],
    /// The changes that were not synced, and whether they are there.
    open: Vec<(&'a Change, bool)>,
}

/// The number of crashes that were tried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tried {
    /// Steps, before and after which it may crash.
    pub points: usize,
    /// Sets of changes.
    pub states: usize,
    /// Different trees that were checked.
    pub trees: usize,
}

impl std::ops::AddAssign for Tried {
    fn add_assign(&mut self, other: Self) {
        self.points += other.points;
        self.states += other.states;
        self.trees += other.trees;
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} crash points, {} states, {} different trees", self.points, self.states, self.trees)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(changes) if changes.len() > 4 => {
                write!(f, "{:?} and {} more changes", changes[0], changes.len() - 1)
            }
            Self::Changed(changes) => write!(f, "{changes:?}"),
            Self::Synced { node, data_only: true } => write!(f, "fdatasync {node}"),
            Self::Synced { node, data_only: false } => write!(f, "fsync {node}"),
            Self::Confirmed(things) => write!(f, "confirmed {things}"),
        }
    }
}

impl fmt::Debug for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.steps).finish()
    }
}

impl fmt::Display for Crash<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a crash after the steps {:#?}", self.steps)?;
        let changes =
            |is_there| self.open.iter().filter(move |(_, there)| *there == is_there).map(|(change, _)| change);
        writeln!(f, "with these changes that were not synced: {:#?}", changes(true).collect::<Vec<_>>())?;
        writeln!(f, "and without these: {:#?}", changes(false).collect::<Vec<_>>())?;
        write!(f, "left {:#?}", self.tree)
    }
}

impl Change {
    /// Returns whether a sync of the node waits for it.
    fn is_synced_by(&self, synced: u64, data_only: bool) -> bool {
        match self {
            Self::New { .. } => false,
            Self::Bytes { node, .. } | Self::Len { node, .. } => *node == synced,
            Self::Mode { node, .. } | Self::Owner { node, .. } | Self::Attribute { node, .. } => {
                *node == synced && !data_only
            }
            Self::Names(names) => names.iter().any(|(dir, ..)| *dir == synced),
        }
    }

    /// Returns a number that is the same for changes that cannot be there without the earlier ones.
    fn place(&self) -> Option<(u64, Option<u64>)> {
        match self {
            Self::Bytes { node, at, .. } => Some((*node, Some(at / SECTOR))),
            Self::Len { node, .. } => Some((*node, None)),
            _ => None,
        }
    }
}

impl History {
    /// Returns the files as the program has left them.
    pub fn end(&self) -> Tree {
        let mut image = self.base.clone();
        self.changes().iter().for_each(|(_, _, change)| image.apply(change));
        image.tree()
    }

    /// Returns each change with its step, and the number of steps after which it is synced.
    fn changes(&self) -> Vec<(usize, usize, &Change)> {
        let mut all = Vec::new();
        for (at, step) in self.steps.iter().enumerate() {
            let Step::Changed(changes) = step else { continue };
            for change in changes {
                let is_sync = |step: &Step| match step {
                    Step::Synced { node, data_only } => change.is_synced_by(*node, *data_only),
                    _ => false,
                };
                let synced = match change {
                    Change::New { .. } => 0,
                    _ => self.steps[at..].iter().position(is_sync).map_or(usize::MAX, |sync| at + sync + 1),
                };
                all.push((at, synced, change));
            }
        }
        all
    }

    /// Passes what a crash may leave after each step, and before the first one. A tree that was passed with the same
    /// confirmed number is not passed again.
    pub fn crashes(&self, mut each: impl FnMut(&Crash<'_>)) -> Tried {
        let mut tried = Tried { points: self.steps.len() + 1, ..Tried::default() };
        let mut seen = HashSet::new();
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let changes = self.changes();
        for point in 0..=self.steps.len() {
            let steps = &self.steps[..point];
            let confirmed = steps.iter().rev().find_map(|step| match step {
                Step::Confirmed(things) => Some(*things),
                _ => None,
            });
            let confirmed = confirmed.unwrap_or_default();
            let made = &changes[..changes.partition_point(|(at, ..)| *at < point)];
            // Changes that are on the disk for certain are in all states.
            let certain = made.iter().take_while(|(_, synced, _)| *synced <= point).count();
            let mut image = self.base.clone();
            made[..certain].iter().for_each(|(_, _, change)| image.apply(change));
            let rest: Vec<_> = made[certain..].iter().map(|(_, synced, change)| (*change, *synced <= point)).collect();
            let open: Vec<_> = rest.iter().filter(|(_, synced)| !synced).map(|(change, _)| *change).collect();
            for is_there in sets(&open, &mut random) {
                let mut image = image.clone();
                let mut next = is_there.iter();
                for (change, synced) in &rest {
                    if *synced || *next.next().expect("one for each open change") {
                        image.apply(change);
                    }
                }
                tried.states += 1;
                let tree = image.tree();
                if seen.insert(hash(&(confirmed, &tree))) {
                    tried.trees += 1;
                    let open = open.iter().copied().zip(is_there).collect();
                    each(&Crash { confirmed, tree, steps, open });
                }
            }
        }
        tried
    }
}

fn hash(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Returns sets of the open changes: for each change, whether it is there.
fn sets(open: &[&Change], random: &mut Random) -> BTreeSet<Vec<bool>> {
    let len = open.len();
    let mut all: BTreeSet<Vec<bool>> = BTreeSet::new();
    let bit = |bits: usize, n: usize| bits >> n & 1 == 1;
    if len <= FEW {
        all.extend((0..1 << len).map(|bits| (0..len).map(|n| bit(bits, n)).collect()));
    } else {
        let step = len.div_ceil(SINGLE);
        for one in (0..len).step_by(step).chain([len - 1]) {
            all.insert((0..len).map(|n| n < one).collect());
            all.insert((0..len).map(|n| n == one).collect());
            all.insert((0..len).map(|n| n != one).collect());
        }
        all.insert(vec![true; len]);
        let others: Vec<usize> = (0..len).filter(|&n| !matches!(open[n], Change::Bytes { .. })).collect();
        for bits in 0..1 << others.len().min(FEW) {
            for bytes in [false, true] {
                let mut set = vec![bytes; len];
                others.iter().enumerate().for_each(|(n, &at)| set[at] = bit(bits, n));
                all.insert(set);
            }
        }
        all.extend((0..RANDOM).map(|_| (0..len).map(|_| random.next() & 1 == 1).collect()));
    }
    all.into_iter().map(|set| with_earlier(open, set)).collect()
}

/// Adds the changes without which others of the set cannot be there.
fn with_earlier(open: &[&Change], mut set: Vec<bool>) -> Vec<bool> {
    let mut places = HashSet::new();
    for (change, is_there) in open.iter().zip(&mut set).rev() {
        let Some(place) = change.place() else { continue };
        *is_there |= places.contains(&place);
        if *is_there {
            places.insert(place);
        }
    }
    set
}

/// xorshift64
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
