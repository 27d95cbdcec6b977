//! Unit tests of `scan`.

use super::*;

#[test]
fn quiet_bytes_end_in_front_of_what_is_loud() {
    for len in 0..100 {
        assert_eq!(quiet(&vec![b'a'; len]), len.saturating_sub(1));
        let lines: Vec<u8> = b"abc\r\n".iter().copied().cycle().take(len).collect();
        assert_eq!(quiet(&lines), len.saturating_sub(1));
        for (loud, at) in [(&b"\r\n\r"[..], 1), (b"\r\r", 0), (b"\rx", 0), (b"x\n", 0)] {
            for behind in [0, 70] {
                let bytes = [&vec![b'a'; len], loud, &vec![b'a'; behind]].concat();
                assert_eq!(quiet(&bytes), len + at, "{loud:?}");
            }
        }
    }
}

#[test]
fn interim_responses_are_told_by_their_start_line() {
    let interim = |text: &[u8]| {
        let mut scan = Scan::new(100);
        assert_eq!(scan.run(text, 100).unwrap(), None);
        scan.is_interim()
    };
    for text in ["HTTP/1.1 100 Continue", "HTTP/1.0 199", "HTTP/1.1 103 Early Hints\r\nLink: x", "HTTP/1.1 102\r\n"] {
        assert!(interim(text.as_bytes()), "{text}");
    }
    for text in [
        "HTTP/1.1 101 Switching Protocols",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 10",
        "GET /1.1 100",
        "http/1.1 100",
        "HTTP/x.1 100",
        "HTTP/1.1 1x0",
    ] {
        assert!(!interim(text.as_bytes()), "{text}");
    }
}
