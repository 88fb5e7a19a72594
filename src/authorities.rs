//! Whom we believe that they are who they say: the system's certificate authorities, or those in the file that
//! `SSL_CERT_FILE` names.

use std::sync::OnceLock;

use rustls::RootCertStore;

/// Reading them takes milliseconds, and they do not change while we run.
static AUTHORITIES: OnceLock<RootCertStore> = OnceLock::new();

/// Those of this system; what cannot be read is told once and left out.
#[must_use]
pub fn of_this_system() -> RootCertStore {
    AUTHORITIES.get_or_init(read).clone()
}

fn read() -> RootCertStore {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "some certificate authorities cannot be read"
        );
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    roots
}
