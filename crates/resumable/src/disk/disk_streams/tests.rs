//! Unit tests of `disk_streams`: which files are removed, and which are not.

use std::os::unix::fs::FileExt;

use super::*;

const TTL: Duration = Duration::from_secs(60);
const LONG_AGO: Duration = Duration::from_secs(365 * 24 * 60 * 60);

fn name(digit: &str) -> String {
    format!("{}{SUFFIX}", digit.repeat(64))
}

/// Writes a file that was last changed a year ago.
fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - LONG_AGO).unwrap();
}

async fn open(path: &Path) -> DiskStreams {
    DiskStreams::open(path, Durability::None).await.unwrap()
}

#[tokio::test]
async fn only_files_of_streams_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let later = [&b"mstream2"[..], &[0; 200]].concat();
    let kept = ["video.stream".to_owned(), name("A"), name("a").replace("aa.", "a."), format!("x{}", name("b"))];
    for name in &kept {
        write(&dir.path().join(name), b"video");
    }
    write(&dir.path().join(name("c")), &later);
    let removed = [(name("d"), &b""[..]), (name("e"), &later[..63])];
    for (name, bytes) in &removed {
        write(&dir.path().join(name), bytes);
    }
    let _streams = open(dir.path()).await;
    for name in kept.iter().chain([&name("c")]) {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    for (name, _) in &removed {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn a_file_with_an_absurd_time_is_removed_years_after_its_last_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name("a"));
    for (age, is_kept) in [(LONG_AGO, true), (LONG_AGO * 4, false)] {
        let file = File::create(&path).unwrap();
        Header::create(&file, 7, u64::MAX).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
        let _streams = open(dir.path()).await;
        assert_eq!(path.exists(), is_kept);
    }
}

#[tokio::test]
async fn a_stream_behind_a_damaged_header_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let (digits, streams) = ("a".repeat(64), open(dir.path()).await);
    let log = streams.open_log(&digits, Some(TTL)).await;
    let token = log.claim(Duration::from_secs(60)).await.unwrap().unwrap();
    log.append(token, 0, &["data: 0\n\n".into()], None).await.unwrap();
    let file = File::options().write(true).open(dir.path().join(name("a"))).unwrap();
    file.write_all_at(b"x", 9).unwrap();
    drop(log);
    // The lock is released on the pool.
    let next = streams.open_log(&digits, Some(TTL)).await;
    assert!(next.read(0).await.unwrap().events.is_empty());
    assert!(next.claim(Duration::from_secs(60)).await.unwrap().is_some());
}

#[tokio::test]
async fn a_log_with_a_damaged_record_begins_again_with_another_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let (digits, streams) = ("a".repeat(64), open(dir.path()).await);
    let log = streams.open_log(&digits, Some(TTL)).await;
    let token = log.claim(Duration::from_secs(60)).await.unwrap().unwrap();
    let events: Vec<bytes::Bytes> = (0..10).map(|n| format!("data: {n}\n\n").into()).collect();
    log.append(token, 0, &events, None).await.unwrap();
    let file = File::options().write(true).open(dir.path().join(name("a"))).unwrap();
    file.write_all_at(b"x", HEADER + 3 * 25 + 20).unwrap();
    let epoch = log.epoch();
    drop(log);
    let again = streams.open_log(&digits, Some(TTL)).await;
    let since = Instant::now();
    // The claim of the first one is released on the pool.
    let gone = loop {
        match again.claim(Duration::from_secs(60)).await {
            Ok(None) => assert!(since.elapsed() < TTL),
            claimed => break claimed,
        }
        sleep(PAUSE).await;
    };
    assert!(matches!(gone, Err(StreamLogError::Gone)), "{gone:?}");
    let next = streams.open_log(&digits, Some(TTL)).await;
    assert_ne!(next.epoch(), epoch);
    assert!(next.claim(Duration::from_secs(60)).await.unwrap().is_some());
}

#[test]
fn a_file_that_fails_does_not_keep_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let file = |digit| dir.path().join(name(digit));
    let absolute = dir.path().to_owned();
    let opened = File::open(&absolute).unwrap();
    let directory = StreamsDirectory {
        path: absolute.clone(),
        absolute,
        file: opened,
        may_wait: false,
        durability: Durability::None,
        due: Arc::default(),
    };
    // Reading a pipe at an offset fails.
    assert!(std::process::Command::new("mkfifo").arg(file("0")).status().unwrap().success());
    for digit in ["a", "b", "c", "d", "e", "f"] {
        write(&file(digit), b"");
    }
    let error = directory.sweep().unwrap_err();
    assert!(error.to_string().contains(&name("0")), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

impl DiskStreams {
    async fn open_log(&self, name: &str, create: Option<Duration>) -> Arc<dyn StreamLog> {
        StreamLogs::open(self, name, create).await.unwrap().unwrap()
    }
}
