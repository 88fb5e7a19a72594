//! TLS to Postgres: who is verified, when a connection is refused, and when it is in clear (docs/deployment.md).

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio::task::block_in_place;

use crate::support::api::{Api, add_key, refusal};
use crate::support::{TestDb, until};

/// An authority of our own, and the file that names it.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: tempfile::TempPath,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        std::fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file }
    }

    fn path(&self) -> &str {
        self.file.to_str().unwrap()
    }

    /// A certificate for `name`, and its key.
    fn vouch_for(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// The server speaks TLS from now on, as `name`.
async fn turn_on(db: &mut TestDb, ours: &Authority, name: &str) {
    let (certificate, key) = ours.vouch_for(name);
    let (certificate, key) =
        (db.server().give("server.crt", &certificate), db.server().give("server.key", &key));
    for (setting, value) in
        [("ssl_cert_file", certificate.display().to_string()), ("ssl_key_file", key.display().to_string())]
    {
        db.run(&format!("alter system set {setting} = '{value}'")).await;
    }
    db.run("alter system set ssl = on").await;
    db.run("select pg_reload_conf()").await;
    until(&db.client().await, "select current_setting('ssl')::boolean").await;
}

/// Of the connections that `euterpe-api` has: are all encrypted, or none?
async fn is_encrypted(db: &TestDb) -> bool {
    let sql = "select s.ssl from pg_stat_ssl s join pg_stat_activity a using (pid)
                where a.application_name like 'euterpe-api/%' group by 1";
    let found: Vec<bool> = db.rows(sql).await.iter().map(|row| row.get(0)).collect();
    assert_eq!(found.len(), 1, "some are and some are not: {found:?}");
    found[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_verified_and_only_a_server_without_tls_is_spoken_to_in_clear() {
    let mut db = TestDb::listening().await;
    let key = add_key(&db, "acme", &["transcode:write", "transcode:read"]).await;
    let (ours, other) = (Authority::new("ours"), Authority::new("another"));
    let port = db.server().port.unwrap();
    let at = |host: &str, mode: &str| {
        format!("host={host} hostaddr=127.0.0.1 port={port} user=euterpe_api dbname=postgres sslmode={mode}")
    };
    let trusts = |authority: &Authority| vec![("SSL_CERT_FILE", authority.path().to_owned())];
    let starts = async |db: &TestDb, url: String, authority: &Authority| {
        let settings = trusts(authority);
        let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let api = Api::over(&url, key.clone(), &settings).await;
        api.enqueue().await;
        is_encrypted(db).await
    };
    let refuses = |url: String, authority: &Authority| {
        block_in_place(|| refusal(&url, &[("SSL_CERT_FILE", Some(authority.path()))]))
    };

    // A server without TLS.
    assert!(!starts(&db, at("127.0.0.1", "prefer"), &ours).await);
    let said = refuses(at("127.0.0.1", "require"), &ours);
    assert!(said.contains("server does not support TLS"), "{said}");

    // The same with TLS.
    turn_on(&mut db, &ours, "db.example").await;
    assert!(starts(&db, at("db.example", "require"), &ours).await);
    assert!(starts(&db, at("db.example", "prefer"), &ours).await);
    for mode in ["require", "prefer"] {
        let said = refuses(at("db.example", mode), &other);
        assert!(said.contains("invalid peer certificate: UnknownIssuer"), "{mode}: {said}");
        let said = refuses(at("elsewhere.example", mode), &ours);
        assert!(said.contains("certificate not valid for name \"elsewhere.example\""), "{mode}: {said}");
        assert!(said.contains("cannot use the database that EUTERPE_DATABASE_URL names"), "{mode}: {said}");
    }
    assert!(!starts(&db, at("db.example", "disable"), &other).await, "told to, it speaks in clear");
}
