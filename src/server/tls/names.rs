//! The certificate for a server name.

use std::collections::HashMap;
use std::sync::Arc;

use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use webpki::EndEntityCert;

/// Selects a certificate by the server name that the client requests (SNI, RFC 6066 §3). If several match, selects the
/// first one whose key the client supports. If none matches, selects the first of all.
#[derive(Debug)]
pub(super) struct ByName {
    all: Vec<Arc<CertifiedKey>>,
    /// DNS names in lower case, with `*.` for any one label, to places in `all`.
    places: HashMap<String, Vec<usize>>,
}

impl ByName {
    pub(super) fn new(all: Vec<Arc<CertifiedKey>>) -> Self {
        let mut places = HashMap::<String, Vec<usize>>::new();
        // A single certificate is the answer to every name.
        for (place, certified) in all.iter().enumerate().filter(|_| all.len() > 1) {
            let parsed = certified.cert.first().map(EndEntityCert::try_from);
            for name in parsed.iter().flatten().flat_map(|certificate| certificate.valid_dns_names()) {
                places.entry(name.to_ascii_lowercase()).or_default().push(place);
            }
        }
        Self { all, places }
    }

    /// Returns the certificates for a name in lower case. An exact name goes before a wildcard.
    fn named<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Arc<CertifiedKey>> + use<'a> {
        let wildcard = name.split_once('.').and_then(|(_, domain)| self.places.get(&format!("*.{domain}")));
        let exact = self.places.get(name);
        exact.into_iter().chain(wildcard).flatten().map(|&place| &self.all[place])
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let named =
            hello.server_name().filter(|_| !self.places.is_empty()).into_iter().flat_map(|name| self.named(name));
        let usable = |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(hello.signature_schemes()).is_some();
        named.chain(&self.all).find(usable).or(self.all.first()).cloned()
    }
}
