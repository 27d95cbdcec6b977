//! Unit tests of `secret`.

use super::*;
use crate::server::tls::provider::provider;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
}

#[test]
fn keys_are_those_of_rfc_8448() {
    // Section 3, "{server} derive write traffic keys for application data".
    let log = SecretLog { users: Arc::new(tokio_rustls::rustls::NoKeyLog), secret: OnceLock::new() };
    assert!(log.will_log(OURS) && !log.will_log("CLIENT_TRAFFIC_SECRET_0"));
    log.log("CLIENT_TRAFFIC_SECRET_0", &[], &[1; 32]);
    let suites = provider().unwrap();
    let suite = suites.cipher_suites.iter().find(|suite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256);
    let suite = suite.unwrap().tls13().unwrap();
    assert!(TrafficSecret::new(suite, &log).is_none());
    log.log(OURS, &[], &bytes("a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643"));
    let mut secret = TrafficSecret::new(suite, &log).unwrap();
    let keys = secret.keys(7);
    assert_eq!(keys.key[..], bytes("9f02283b6c9c07efc26bb9f2ac92e356"));
    assert_eq!(keys.nonce[..], bytes("cf782b88dd83549aadf1e984"));
    assert_eq!((keys.cipher, keys.sequence), (Cipher::Aes128Gcm, 7));
    secret.update();
    assert_ne!(secret.keys(0).key, keys.key);
}
