//! Unit tests of `setup`.

use super::*;
use crate::runtime::driver_info;

#[test]
fn the_ways_are_read_by_name() {
    for io in [Io::Auto, Io::Uring, Io::Epoll] {
        assert_eq!(io.to_string().parse::<Io>().unwrap(), io);
    }
    assert_eq!("".parse::<Io>().unwrap(), Io::Auto);
    assert!("io_uring".parse::<Io>().unwrap_err().to_string().contains("use auto, uring or epoll"));
}

#[tokio::test]
async fn a_driver_is_installed_once_and_before_use() {
    DriverBuilder::new().io(Io::Epoll).entries(100).install().unwrap();
    let error = DriverBuilder::new().install().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(driver_info().to_string(), "blocking pool, as asked for");
}

#[test]
fn entries_are_a_power_of_two_within_bounds() {
    for (asked, got) in [(0, 32), (33, 64), (128, 128), (1 << 20, 4096)] {
        assert_eq!(DriverBuilder::new().entries(asked).ring.entries, got);
    }
}
