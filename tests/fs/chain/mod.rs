//! Chains on real files, by io_uring and by the blocking pool: the same outcomes and bytes, and nothing left open.
//! Descriptors belong to the process, so each test runs in its own process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use millstream::fs::OpenOptions;
use millstream::fs::chain::Chain;
use millstream::fs::chain::StepOutcome::{Done, Short, Skipped};
use rustix::io::Errno;

mod both;
mod dropped;
mod many;
mod streams;

use both::{both, failed, new_file, reading};

use testkit::alone;
use testkit::report::report;

#[test]
fn a_file_is_replaced_whole_and_is_on_the_disk() {
    if alone::ran_in_child() {
        return;
    }
    let (outcomes, files) = both(async |place| {
        fs::write(place.path("state"), "old").unwrap();
        let (temp, path) = (place.path("temp"), place.path("state"));
        let dir = Arc::new(fs::File::open(place.dir()).unwrap());
        let chain = Chain::new().open(&temp, new_file()).write("new ").write("state").sync().rename(&temp, &path);
        (place.outcomes(chain.on(dir).sync()).await, place.files())
    });
    assert_eq!(outcomes, [Done(0), Done(4), Done(5), Done(0), Done(0), Done(0)]);
    assert_eq!(files, [("state".to_owned(), Bytes::from("new state"))]);
}

#[test]
fn nothing_is_done_behind_a_missing_file() {
    if alone::ran_in_child() {
        return;
    }
    let (outcomes, message, files) = both(async |place| {
        let chain = || Chain::new().open(place.path("missing"), reading()).read(10).unlink(place.path("other"));
        fs::write(place.path("other"), "stays").unwrap();
        let error = chain().run().await.unwrap_err();
        let message = report(&error).replace(place.dir().to_str().unwrap(), "dir");
        assert_eq!(error.raw_os_error(), Some(Errno::NOENT.raw_os_error()));
        (place.outcomes(chain()).await, message, place.files())
    });
    assert_eq!(outcomes, [failed(Errno::NOENT), Skipped, Skipped]);
    assert_eq!(message, "open dir/missing (step 1 of 3): No such file or directory (os error 2)");
    assert_eq!(files.len(), 1);
}

#[test]
fn a_read_ends_at_the_end_of_its_file() {
    if alone::ran_in_child() {
        return;
    }
    let (alone, followed) = both(async |place| {
        fs::write(place.path("file"), "0123456789").unwrap();
        let open = || Chain::new().open(place.path("file"), reading());
        let alone = open().read(4).read(100).run().await.expect("the end of a file is no error");
        place.check_way(&alone);
        let followed = place.run(open().read_at(7, 100).read_at(0, 2)).await;
        ((alone.outcomes().to_vec(), alone.into_reads()), followed)
    });
    assert_eq!(alone, (vec![Done(0), Done(4), Short(6)], vec!["0123".into(), "456789".into()]));
    assert_eq!(followed, (vec![Done(0), Short(3), Skipped], vec!["789".into(), "".into()]));
}

#[test]
fn reads_and_writes_go_on_where_the_last_one_ended() {
    if alone::ran_in_child() {
        return;
    }
    let (ended, files) = both(async |place| {
        let chain = Chain::new().open(place.path("file"), new_file()).write("abcdef").write_at(1, "BC").write("gh");
        let chain =
            chain.read_at(0, 8).close().open(place.path("file"), reading()).read(3).read(3).read_at(0, 1).read(2);
        let chain = chain.close().open(place.path("file"), OpenOptions::new().append(true)).write("i").write_at(0, "j");
        (place.run(chain).await, place.files())
    });
    assert!(ended.0.iter().all(|outcome| matches!(outcome, Done(_))), "{ended:?}");
    assert_eq!(ended.1, ["aBCdefgh", "aBC", "def", "a", "gh"]);
    assert_eq!(files, [("file".to_owned(), Bytes::from("aBCdefghij"))]);
}

#[test]
fn a_full_disk_in_the_middle_stops_the_chain() {
    if alone::ran_in_child() {
        return;
    }
    let (ended, files) = both(async |place| {
        let full = Arc::new(fs::File::options().write(true).open("/dev/full").unwrap());
        let chain = Chain::new().open(place.path("temp"), new_file()).write("written").on(full).write("not written");
        (place.outcomes(chain.rename(place.path("temp"), place.path("name")).sync()).await, place.files())
    });
    assert_eq!(ended, [Done(0), Done(7), failed(Errno::NOSPC), Skipped, Skipped]);
    assert_eq!(files, [("temp".to_owned(), Bytes::from("written"))]);
}

#[test]
fn a_step_may_fail_where_the_chain_says_so() {
    if alone::ran_in_child() {
        return;
    }
    let (outcomes, step) = both(async |place| {
        let chain = || {
            let chain = Chain::new().unlink(place.path("old")).hardlink().open(place.path("a"), new_file()).hardlink();
            chain.write("x").hardlink().read(5).hardlink().read_at(0, 1)
        };
        let first = place.outcomes(chain()).await;
        fs::remove_file(place.path("a")).unwrap();
        (first, chain().run().await.unwrap_err().step())
    });
    assert_eq!(outcomes, [failed(Errno::NOENT), Done(0), Done(1), Short(0), Done(1)]);
    assert_eq!(step, Some(0), "still an error");
}

#[test]
fn names_are_given_taken_and_swapped() {
    if testkit::portable("names are not swapped") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    let (ended, taken, files) = both(async |place| {
        let dir = Arc::new(fs::File::open(place.dir()).unwrap());
        let chain = Chain::new().at(dir.clone()).open("a", new_file()).write("A").open("b", new_file()).write("B");
        let chain = chain.exchange("a", "b").link("a", "c").rename_new("b", "d").unlink("a");
        let ended = place.outcomes(chain).await;
        let taken = place.outcomes(Chain::new().at(dir).rename_new("c", "d").unlink("c")).await;
        (ended, taken, place.files())
    });
    assert_eq!(ended, [Done(0), Done(1), Done(0), Done(1), Done(0), Done(0), Done(0), Done(0)]);
    assert_eq!(taken, [failed(Errno::EXIST), Skipped]);
    assert_eq!(files, [("c".to_owned(), Bytes::from("B")), ("d".to_owned(), Bytes::from("A"))]);
}

#[test]
fn a_path_stays_beneath_its_directory_if_it_must() {
    if alone::ran_in_child() {
        return;
    }
    let stays = testkit::portable("paths beneath an open directory never leave it");
    let outcomes = both(async |place| {
        fs::create_dir(place.path("sub")).unwrap();
        fs::write(place.path("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", place.path("sub/link")).unwrap();
        let dir = Arc::new(fs::File::open(place.path("sub")).unwrap());
        let open = |path: &str, beneath| Chain::new().at(dir.clone()).open(path, reading().beneath(beneath)).read(6);
        let mut outcomes = Vec::new();
        for (path, beneath) in [("../secret", true), ("link", true), ("/etc/hostname", true), ("link", false)] {
            outcomes.push(place.outcomes(open(path, beneath)).await);
        }
        outcomes
    });
    assert_eq!(outcomes[..3], [const { [failed_const(Errno::XDEV), Skipped] }; 3].map(Vec::from));
    assert_eq!(outcomes[3], if stays { [failed(Errno::XDEV), Skipped] } else { [Done(0), Done(6)] });
}

const fn failed_const(errno: Errno) -> millstream::fs::chain::StepOutcome {
    millstream::fs::chain::StepOutcome::Failed(errno.raw_os_error())
}

#[test]
fn room_is_set_aside_and_the_length_stays() {
    if testkit::portable("no space is reserved") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    let (outcomes, len) = both(async |place| {
        let chain = Chain::new().open(place.path("file"), new_file()).allocate(1 << 20).write("x").sync_data();
        let outcomes = place.outcomes(chain).await;
        let file = fs::metadata(place.path("file")).unwrap();
        assert!(file.blocks() * 512 >= 1 << 20, "{} blocks", file.blocks());
        (outcomes, file.len())
    });
    assert_eq!((outcomes, len), (vec![Done(0), Done(0), Done(1), Done(0)], 1));
}

#[test]
fn bytes_are_spliced_from_file_to_file_through_a_pipe() {
    if testkit::portable("there is no splice") {
        return;
    }
    if alone::ran_in_child() {
        return;
    }
    let bytes = testkit::noise(50_000);
    let (ended, short, copied) = both(async |place| {
        fs::write(place.path("from"), &bytes).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let (reader, writer) = (Arc::new(reader), Arc::new(writer));
        let chain = Chain::new().open(place.path("from"), reading()).splice_to(writer.clone(), 50_000);
        let chain = chain.open(place.path("to"), new_file()).splice_from(reader.clone(), 50_000);
        let ended = place.outcomes(chain).await;
        let short = Chain::new().open(place.path("from"), reading()).splice_to(writer, 60_000).nop();
        let short = place.outcomes(short).await;
        drop(reader);
        (ended, short, fs::read(place.path("to")).unwrap() == bytes)
    });
    assert_eq!(ended, [Done(0), Done(50_000), Done(0), Done(50_000)]);
    assert_eq!(short, [Done(0), Short(50_000), Skipped]);
    assert!(copied);
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    if alone::ran_in_child() {
        return;
    }
    let ended = both(async |place| {
        let limit = Duration::from_secs(60);
        let chain =
            Chain::new().open(place.path("file"), new_file()).timeout(limit).write("abc").timeout(Duration::MAX);
        let chain = chain.sync().timeout(limit).hardlink().read_at(0, 3).timeout(limit);
        place.run(chain).await
    });
    assert_eq!(ended, (vec![Done(0), Done(3), Done(0), Done(3)], vec!["abc".into()]));
}

#[test]
fn an_empty_chain_and_a_mistaken_one_touch_nothing() {
    if alone::ran_in_child() {
        return;
    }
    both(async |place| {
        assert!(Chain::new().run().await.unwrap().outcomes().is_empty());
        let chain = Chain::new().open(place.path("file"), new_file()).write("x").unlink("\0");
        let error = chain.run().await.unwrap_err();
        assert_eq!((error.step(), error.kind()), (Some(2), std::io::ErrorKind::InvalidInput));
        assert_eq!(error.report().outcomes(), [Skipped; 3]);
        assert!(place.files().is_empty());
    });
}
