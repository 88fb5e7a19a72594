//! TLS to Postgres, by `sslmode` in the connection string: `disable`, `prefer` (the default) or `require`.
//!
//! A certificate is always verified, with the host's name: by the system's authorities, or by those in the file that
//! `SSL_CERT_FILE` names. So `require` is libpq's `verify-full`. `prefer` asks the server whether it has TLS and goes on in
//! clear only when it says no; a certificate that does not hold is refused, never passed over. Whoever sits in between may
//! say no in its place: across a network say `require`. Over a Unix socket there is no TLS.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::authorities;

/// How to connect by `config`: the configuration to use, and what speaks TLS.
pub(super) fn over_tls(mut config: Config) -> (Config, MakeRustlsConnect) {
    let is_local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
    let roots = if is_local {
        config.ssl_mode(SslMode::Disable);
        RootCertStore::empty()
    } else {
        authorities::of_this_system()
    };
    let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring speaks TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (config, MakeRustlsConnect::new(tls))
}

/// One connection; the second half drives it.
pub(super) async fn connect(
    config: &Config,
) -> Result<
    (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>),
    tokio_postgres::Error,
> {
    let (config, tls) = over_tls(config.clone());
    config.connect(tls).await
}
