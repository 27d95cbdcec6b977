//! CPU placement of cores.

use std::io;

#[derive(Debug)]
pub(super) struct Facts {
    /// Allowed CPUs by number, or the reason why they are unknown.
    pub(super) allowed: io::Result<Vec<usize>>,
    /// Number of CPUs whose time is available, which a cgroup may limit.
    pub(super) parallelism: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Places {
    On(Vec<usize>),
    /// On any CPU, with the reason.
    Anywhere(String),
}

impl Facts {
    pub(super) fn places(self) -> Places {
        match self.allowed {
            Err(e) => Places::Anywhere(format!("the CPU affinity of this process is unknown: {e}")),
            Ok(cpus) if cpus.is_empty() => Places::Anywhere("the CPUs of this process have no numbers".into()),
            // All containers with such a quota would choose the same first CPUs.
            Ok(cpus) if cpus.len() > self.parallelism => Places::Anywhere(format!(
                "a quota limits this process to the time of {} CPUs but lets it run on {}; \
                 use a cpuset to give it CPUs of its own",
                self.parallelism,
                cpus.len()
            )),
            Ok(cpus) => Places::On(cpus),
        }
    }
}

impl Places {
    pub(super) fn of(&self, index: usize) -> Option<usize> {
        match self {
            Self::On(cpus) => Some(cpus[index % cpus.len()]),
            Self::Anywhere(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(allowed: &[usize], parallelism: usize) -> Places {
        Facts { allowed: Ok(allowed.to_vec()), parallelism }.places()
    }

    #[test]
    fn cpus_are_taken_in_order_and_again_from_the_first() {
        let places = places(&[2, 3, 7], 3);
        assert_eq!((0..5).filter_map(|index| places.of(index)).collect::<Vec<_>>(), [2, 3, 7, 2, 3]);
    }

    #[test]
    fn a_quota_leaves_the_choice_to_the_kernel() {
        let places = places(&[0, 1, 2, 3], 2);
        assert_eq!(places.of(0), None);
        assert!(matches!(places, Places::Anywhere(reason) if reason.contains("time of 2 CPUs")));
    }

    #[test]
    fn unknown_cpus_are_not_an_error() {
        let unknown = Facts { allowed: Err(io::ErrorKind::PermissionDenied.into()), parallelism: 4 };
        assert_eq!(unknown.places().of(0), None);
        assert_eq!(places(&[], 1).of(0), None);
    }
}
