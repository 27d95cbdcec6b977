//! The process is killed, and files are damaged: the confirmed appends are there, and nothing else.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use support::{Client, Server, pause, refused};

mod support;

const TEXT: (&str, &str) = ("content-type", "text/plain");
const WRITERS: usize = 8;
const HEADER: usize = 20;

/// Returns the lines of a stream after the writer that wrote them. Fails if one is not whole, twice or out of order.
fn counts(read: &[u8], scale: usize) -> Vec<usize> {
    let mut counts = vec![0; WRITERS];
    for line in std::str::from_utf8(read).unwrap().split_terminator('\n') {
        let mut parts = line.split(' ');
        let (writer, number) = (parts.next().unwrap(), parts.next().unwrap());
        let (writer, number): (usize, usize) = (writer.parse().unwrap(), number.parse().unwrap());
        assert_eq!(number, counts[writer], "the next line of writer {writer}");
        assert_eq!(parts.next().map(str::len), Some(size(number) * scale), "line {number} of writer {writer}");
        counts[writer] += 1;
    }
    assert!(read.last().is_none_or(|&last| last == b'\n'), "half a line");
    counts
}

fn size(number: usize) -> usize {
    number * 37 % 900
}

#[test]
fn appends_survive_kills() {
    kill_writers(1);
}

#[test]
fn appends_survive_kills_while_segments_are_full() {
    kill_writers(150);
}

/// Kills the server six times while writers append lines of up to `900 * scale` bytes to three streams.
fn kill_writers(scale: usize) {
    let dir = tempfile::tempdir().unwrap();
    let streams = ["/one", "/two", "/three"];
    let mut confirmed = [[0; WRITERS]; 3];
    for round in 0..6 {
        let mut server = Server::start(dir.path());
        for (stream, confirmed) in streams.iter().zip(&mut confirmed) {
            if round == 0 {
                assert_eq!(server.ask("PUT", stream, &[TEXT], b"").status, 201);
            }
            let found = counts(&server.read(stream), scale);
            for (found, confirmed) in found.into_iter().zip(confirmed) {
                // One append of each writer was on its way.
                assert!((*confirmed..=*confirmed + 1).contains(&found), "round {round}: {found}, not {confirmed}");
                *confirmed = found;
            }
        }
        let ended = AtomicBool::new(false);
        let address = server.address;
        thread::scope(|scope| {
            let mut started = Vec::new();
            for (stream, confirmed) in streams.iter().zip(&mut confirmed) {
                for (writer, confirmed) in confirmed.iter_mut().enumerate() {
                    let ended = &ended;
                    started.push(scope.spawn(move || {
                        let mut client = Client::new(address);
                        while !ended.load(Ordering::Relaxed) {
                            let line = format!("{writer} {confirmed} {}\n", "x".repeat(size(*confirmed) * scale));
                            let Some(answer) = client.ask("POST", stream, &[TEXT], line.as_bytes()) else { break };
                            assert_eq!(answer.status, 204);
                            *confirmed += 1;
                        }
                    }));
                }
            }
            pause(Duration::from_millis(150 + 130 * round));
            server.kill();
            ended.store(true, Ordering::Relaxed);
        });
    }
    assert!(confirmed.iter().flatten().sum::<usize>() > 100, "the writers were too slow for this test");
}

/// Starts a server with a stream, and makes appends that are each a commit. Returns the segment with them.
fn killed(dir: &Path, appends: &[&str]) -> PathBuf {
    let mut server = Server::start(dir);
    assert_eq!(server.ask("PUT", "/s", &[TEXT], b"").status, 201);
    for append in appends {
        assert_eq!(server.ask("POST", "/s", &[TEXT], append.as_bytes()).status, 204);
    }
    server.kill();
    dir.join("journal-0")
}

/// Returns the place of the record that has these bytes at its end.
fn record_of(segment: &Path, data: &str) -> (u64, u64) {
    let bytes = fs::read(segment).unwrap();
    let end = bytes.windows(data.len()).position(|window| window == data.as_bytes()).unwrap() + data.len();
    let start = (0..end - HEADER).rev().find(|&at| {
        let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        &bytes[at + 17..at + 20] == b"DS1" && at + HEADER + len == end
    });
    (start.unwrap() as u64, end as u64)
}

#[test]
fn a_torn_end_is_no_append() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "second", "third"]);
    let (start, end) = record_of(&segment, "third");
    for cut in [start + 3, end - 1] {
        // As after a power cut: the rest of the segment has its old bytes.
        let file = OpenOptions::new().write(true).open(&segment).unwrap();
        file.write_all_at(&vec![0; (end - cut) as usize], cut).unwrap();
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(dir.path()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_file()) {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        let server = Server::start(copy.path());
        assert_eq!(server.read("/s"), b"firstsecond");
        assert_eq!(server.ask("POST", "/s", &[TEXT], b"!").status, 204);
        assert_eq!(server.read("/s"), b"firstsecond!");
    }
}

#[test]
fn records_of_an_earlier_process_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "lost!", "never confirmed"]);
    let file = OpenOptions::new().write(true).read(true).open(&segment).unwrap();
    // The second and the third append were one commit. A power cut has lost both, as far as the next process finds.
    let (start, _) = record_of(&segment, "lost!");
    let (last, end) = record_of(&segment, "never confirmed");
    let mut record = vec![0; (end - last) as usize];
    file.read_exact_at(&mut record, last).unwrap();
    file.write_all_at(&vec![0; (end - start) as usize], start).unwrap();
    // Not the first of its commit. A checksum changes by the same bits whatever its salt is.
    let crc = |record: &[u8]| crc32c::crc32c_append(crc32c::crc32c(&record[..4]), &record[8..]);
    let before = crc(&record) ^ u32::from_le_bytes(record[4..8].try_into().unwrap());
    record[16] = 0;
    let after = crc(&record) ^ before;
    record[4..8].copy_from_slice(&after.to_le_bytes());
    let mut server = Server::start(dir.path());
    assert_eq!(server.read("/s"), b"first");
    assert_eq!(server.ask("POST", "/s", &[TEXT], b"lost!").status, 204, "the client tries again");
    server.kill();
    // The old record is behind the new one, and would continue it.
    let (_, end) = record_of(&segment, "lost!");
    file.write_all_at(&record, end).unwrap();
    assert_eq!(Server::start(dir.path()).read("/s"), b"firstlost!");
}

#[test]
fn data_in_the_form_of_a_record_is_no_record() {
    let other = tempfile::tempdir().unwrap();
    let record = {
        let segment = killed(other.path(), &["a", "b", "c", "d", "e", "record of another store"]);
        let (start, end) = record_of(&segment, "record of another store");
        fs::read(&segment).unwrap()[start as usize..end as usize].to_vec()
    };
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"");
    server.ask("POST", "/s", &[TEXT], b"first");
    server.ask("POST", "/s", &[TEXT], &[&record[..], b"end"].concat());
    server.kill();
    // The record around it is torn.
    let segment = dir.path().join("journal-0");
    let bytes = fs::read(&segment).unwrap();
    let inside = bytes.windows(record.len()).position(|window| window == record).unwrap();
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"END", (inside + record.len()) as u64).unwrap();
    assert_eq!(Server::start(dir.path()).read("/s"), b"first");
}

#[test]
fn damage_before_confirmed_appends_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let segment = killed(dir.path(), &["first", "second", "third"]);
    let (start, _) = record_of(&segment, "second");
    let file = OpenOptions::new().write(true).open(&segment).unwrap();
    file.write_all_at(b"?", start + 30).unwrap();
    let text = refused(dir.path());
    assert!(text.contains("damaged") && text.contains("journal-0"), "{text}");
}

#[test]
fn a_file_that_lost_bytes_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    server.ask("PUT", "/s", &[TEXT], b"bytes");
    server.stop();
    // The opening moves them into the file.
    Server::start(dir.path()).stop();
    let file = fs::read_dir(dir.path().join("data")).unwrap().next().unwrap().unwrap().path();
    OpenOptions::new().write(true).open(file).unwrap().set_len(2).unwrap();
    let text = refused(dir.path());
    assert!(text.contains("has 2 bytes, but 5 were confirmed"), "{text}");
}

#[test]
fn a_directory_has_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let _server = Server::start(dir.path());
    let text = refused(dir.path());
    assert!(text.contains("another process has it open"), "{text}");
}
