//! Unit tests of `chunked`.

use super::*;

/// The data of a body, the bytes behind it, and its trailers.
type Decoded = (Vec<u8>, Vec<u8>, Option<HeaderMap>);

/// Decodes a body in pieces of this length.
fn decode(body: &[u8], piece: usize) -> Result<Decoded, Malformed> {
    let mut decoder = Decoder::new(100);
    let (mut data, mut behind) = (Vec::new(), Vec::new());
    for piece in body.chunks(piece) {
        let mut piece = piece.to_vec();
        let (range, used) = decoder.decode(&mut piece)?;
        data.extend_from_slice(&piece[range]);
        behind.extend_from_slice(&piece[used..]);
    }
    assert!(decoder.has_ended(), "{:?} in {:?}", decoder.place, String::from_utf8_lossy(body));
    Ok((data, behind, decoder.trailers(2)?))
}

#[test]
fn bodies_are_decoded_in_pieces_of_any_length() {
    let body = b"5\r\nabcde\r\n00A;x=y\r\nfghijklmno\r\n1 \r\np\r\n0\r\nX-Sum: 1\r\nx-other:\r\n\r\nHTTP";
    for piece in 1..=body.len() {
        let (data, behind, trailers) = decode(body, piece).unwrap();
        assert_eq!((&data[..], &behind[..]), (&b"abcdefghijklmnop"[..], &b"HTTP"[..]), "{piece}");
        let trailers = trailers.unwrap();
        assert_eq!((&trailers["x-sum"], &trailers["x-other"]), (&HeaderValue::from(1), &HeaderValue::from_static("")));
    }
    for piece in 1..=5 {
        assert_eq!(decode(b"0\r\n\r\n", piece).unwrap(), (vec![], vec![], None));
    }
}

#[test]
fn bodies_that_two_servers_could_read_differently_are_malformed() {
    for body in [
        &b"\r\n"[..],
        b";x\r\n",
        b" 1\r\na",
        b"-1\r\n",
        b"0x1\r\na",
        b"1\na\r\n0\r\n\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n0\r\n\r\n",
        b"1\r\na\rb",
        b"1;\n\r\na",
        b"1;x\0\r\n",
        b"1 2\r\n",
        b"00000000000000001\r\na",
        b"10000000000000000\r\n",
        b"0\r\nx-a: b\nx-c: d\r\n\r\n",
        b"0\r\n\nx-a: b\r\n\r\n",
        b"0\r\n x-a: b\r\n\r\n",
        b"0\r\nx-a : b\r\n\r\n",
        b"0\r\nx-a\r\n\r\n",
        b"0\r\na:1\r\nb:2\r\nc:3\r\n\r\n",
    ] {
        for piece in [1, body.len()] {
            assert!(decode(body, piece).is_err(), "{}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn extensions_and_trailers_are_bounded() {
    let long = "x".repeat(101);
    for body in [format!("1;{long}\r\n"), format!("1{}\r\n", " ".repeat(101)), format!("0\r\nx-{long}: 1\r\n\r\n")] {
        assert_eq!(decode(body.as_bytes(), 7).unwrap_err(), Malformed("extensions or trailers that are too long"));
    }
    let spread = "1;xxxxxxxxxx\r\na\r\n".repeat(10) + "0\r\n\r\n";
    assert!(decode(spread.as_bytes(), 7).is_err(), "in all of a body");
}

#[test]
fn data_is_that_of_the_chunks() {
    let mut seed = 1_u64;
    let mut random = |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % most
    };
    for _ in 0..500 {
        let (mut body, mut data) = (Vec::new(), Vec::new());
        for _ in 0..random(20) {
            let most = [3, 30, 3000][random(3) as usize];
            let chunk: Vec<u8> = (0..=random(most)).map(|_| random(256) as u8).collect();
            body.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            body.extend_from_slice(&chunk);
            body.extend_from_slice(b"\r\n");
            data.extend_from_slice(&chunk);
        }
        body.extend_from_slice(b"0\r\n\r\n");
        let piece = 1 + random(4000) as usize;
        assert!(decode(&body, piece).unwrap().0 == data, "pieces of {piece} bytes");
    }
}
