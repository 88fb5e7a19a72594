//! Design §5.18: nothing is sent to a place that is not public, however it is spelled, whatever its name resolves to, and
//! whoever it is believed to be.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use euterpe::domain::{EgressPolicy, EgressPorts};
use euterpe::egress::{Answer, Call, Egress, Failure, Limits, Resolve, Resolved, System};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use crate::support::receiver::{Does, Receiver};

/// Names with what they mean the first time, the second time and so on; the last stays.
#[derive(Default)]
pub struct Names {
    meanings: Mutex<HashMap<String, VecDeque<Vec<IpAddr>>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    pub fn with(self, name: &str, meanings: &[&[&str]]) -> Self {
        let read = |addresses: &&[&str]| addresses.iter().map(|address| address.parse().unwrap()).collect();
        self.meanings.lock().unwrap().insert(name.to_owned(), meanings.iter().map(read).collect());
        self
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Resolved> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut meanings = self.meanings.lock().unwrap();
        let found = meanings.get_mut(name).map(|meanings| {
            if meanings.len() > 1 { meanings.pop_front().unwrap() } else { meanings[0].clone() }
        });
        let found = found.ok_or_else(|| io::Error::other("no such name"));
        std::future::ready(found).boxed()
    }
}

/// Over http, to these networks although they are not public, and to whatever port the kernel gave a test.
pub fn lax(allow: &[&str]) -> EgressPolicy {
    EgressPolicy {
        allow: allow.iter().map(|net| net.parse().unwrap()).collect(),
        allow_http: true,
        ports: EgressPorts::Any,
    }
}

fn egress(policy: EgressPolicy, names: Names) -> Egress {
    Egress::with(policy, Limits::default(), Arc::new(names), RootCertStore::empty())
}

async fn get(egress: &Egress, url: &str) -> Result<Answer, Failure> {
    egress.call(Call { method: Method::GET, url, headers: &[], body: Bytes::new() }).await
}

async fn class(egress: &Egress, url: &str) -> &'static str {
    get(egress, url).await.map_or_else(|failure| failure.class(), |_| "sent")
}

/// Spellings of 127.0.0.1, and names that mean it. Those in the second half never pass, the others where it is allowed.
const LOOPBACK: &[&str] = &[
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "2130706433",
    "017700000001",
    "0177.0.0.1",
    "0x7f.1",
    "0x7f000001",
    "%31%32%37.0.0.1",
    "①②⑦.⓪.⓪.①",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "plain.example",
    "plain.example.",
    "mapped.example",
];
const NEVER: &[&str] = &[
    "user@127.0.0.1",
    "user:pass@127.0.0.1",
    "@127.0.0.1",
    "public.example\\@127.0.0.1",
    "[64:ff9b::7f00:1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[2001:0:7f00:1::]",
    "nat64.example",
    "six2four.example",
    "compatible.example",
    "both.example",
    "[::1]",
    "0",
    "0.0.0.0",
    "[::]",
];

fn names() -> Names {
    Names::default()
        .with("plain.example", &[&["127.0.0.1"]])
        .with("plain.example.", &[&["127.0.0.1"]])
        .with("mapped.example", &[&["::ffff:127.0.0.1"]])
        .with("nat64.example", &[&["64:ff9b::7f00:1"]])
        .with("six2four.example", &[&["2002:7f00:1::"]])
        .with("compatible.example", &[&["::127.0.0.1"]])
        // One address that is not allowed is enough, also behind one that is.
        .with("both.example", &[&["8.8.8.8", "127.0.0.1", "::1"]])
}

#[tokio::test]
async fn no_spelling_of_loopback_reaches_a_listener_that_would_have_heard_it() {
    let everywhere = Receiver::at("0.0.0.0:0", None, |_, _| Does::Answers(200)).await;
    let port = everywhere.address.port();
    let (strict, allowed) = (egress(lax(&[]), names()), egress(lax(&["127.0.0.0/8"]), names()));
    for host in LOOPBACK.iter().chain(NEVER) {
        assert_eq!(class(&strict, &format!("http://{host}:{port}/")).await, "blocked", "{host}");
    }
    for host in NEVER {
        assert_eq!(class(&allowed, &format!("http://{host}:{port}/")).await, "blocked", "{host}");
    }
    assert_eq!(everywhere.connections(), 0, "it stayed silent");

    for host in LOOPBACK {
        assert_eq!(class(&allowed, &format!("http://{host}:{port}/")).await, "sent", "{host}");
    }
    assert_eq!(everywhere.got().len(), LOOPBACK.len(), "it would have heard each of them");
}

#[tokio::test]
async fn a_name_that_means_something_else_at_the_second_look_up_is_judged_again() {
    let (first, second) =
        (Receiver::kind().await, Receiver::at("127.0.0.2:0", None, |_, _| Does::Answers(200)).await);
    for (port, wanted) in [(first.address.port(), "sent"), (second.address.port(), "connect")] {
        let names = Arc::new(Names::default().with("hooks.example", &[&["127.0.0.1"], &["127.0.0.2"]]));
        let resolver = Arc::clone(&names) as Arc<dyn Resolve>;
        // To this deployment 127.0.0.1 is public, and 127.0.0.2 is not.
        let egress =
            Egress::with(lax(&["127.0.0.1/32"]), Limits::default(), resolver, RootCertStore::empty());
        let url = format!("http://hooks.example:{port}/");
        assert_eq!(class(&egress, &url).await, wanted);
        assert_eq!(names.asked.lock().unwrap().len(), 1, "judged and connected to by one look-up");
        assert_eq!(class(&egress, &url).await, "blocked");
    }
    assert_eq!((first.connections(), second.connections()), (1, 0));
}

/// An authority, and a receiver with a certificate of its for `name`.
async fn certified(name: &str) -> (RootCertStore, Receiver) {
    let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let ca_cert = ca.self_signed(&ca_key).unwrap();
    let issuer = Issuer::from_params(&ca, &ca_key);
    let cert = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(ca_cert.der().clone()).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], private)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    (roots, Receiver::at("127.0.0.1:0", Some(acceptor), |_, _| Does::Answers(204)).await)
}

#[tokio::test]
async fn the_certificate_must_be_for_the_name_and_from_an_authority() {
    let (roots, receiver) = certified("hooks.example").await;
    let port = receiver.address.port();
    let names = || {
        let names = Names::default().with("hooks.example", &[&["127.0.0.1"]]);
        Arc::new(names.with("hooks.example.", &[&["127.0.0.1"]]).with("other.example", &[&["127.0.0.1"]]))
    };
    let trusting = Egress::with(lax(&["127.0.0.1/32"]), Limits::default(), names(), roots);
    let strict = Egress::with(lax(&["127.0.0.1/32"]), Limits::default(), names(), RootCertStore::empty());
    for host in ["hooks.example", "hooks.example."] {
        let answer = get(&trusting, &format!("https://{host}:{port}/")).await.unwrap();
        assert_eq!(answer.status, 204, "{host}");
    }
    for (egress, host) in [(&trusting, "other.example"), (&trusting, "127.0.0.1"), (&strict, "hooks.example")]
    {
        assert_eq!(class(egress, &format!("https://{host}:{port}/")).await, "tls", "{host}");
    }
    assert_eq!(receiver.got().len(), 2, "nothing was sent to whom we do not believe");
    let plain = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = plain.local_addr().unwrap().port();
    tokio::spawn(async move { plain.accept().await.map(drop) });
    assert_eq!(class(&trusting, &format!("https://127.0.0.1:{port}/")).await, "tls");
}

#[tokio::test]
async fn what_has_no_answer_has_a_class_and_says_neither_url_nor_address() {
    let closed = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let names =
        Names::default().with("hooks.example", &[&["127.0.0.1"]]).with("inside.example", &[&["10.1.2.3"]]);
    let egress = egress(lax(&["127.0.0.1/32"]), names.with("nowhere.example", &[&[]]));
    for (host, wanted) in [
        ("hooks.example", "connect"),
        ("inside.example", "blocked"),
        ("nowhere.example", "dns"),
        ("unknown.example", "dns"),
        ("10.1.2.3", "blocked"),
    ] {
        let failure = get(&egress, &format!("http://{host}:{closed}/s3cr3t")).await.unwrap_err();
        assert_eq!(failure.class(), wanted, "{host}");
        let says = format!("{failure} {failure:?}");
        for secret in ["s3cr3t", "10.1.2.3", "127.0.0.1", host] {
            assert!(!says.contains(secret), "{says}");
        }
    }
    assert_eq!(class(&egress, "ftp://hooks.example/").await, "blocked");
    let https_only = EgressPolicy { allow_http: false, ..lax(&["127.0.0.1/32"]) };
    let https_only = Egress::with(https_only, Limits::default(), Arc::new(System), RootCertStore::empty());
    assert_eq!(class(&https_only, &format!("http://127.0.0.1:{closed}/")).await, "blocked");
}

/// The listener would have heard it: the port alone decides.
#[tokio::test]
async fn a_port_that_is_not_on_the_list_is_not_called() {
    let receiver = Receiver::start(|_, _| Does::Answers(200)).await;
    let port = receiver.url().parse::<url::Url>().unwrap().port().unwrap();
    for (ports, wanted) in [
        (EgressPorts::default(), "blocked"),
        (EgressPorts::UsualAnd(vec![port - 1]), "blocked"),
        (EgressPorts::UsualAnd(vec![port]), "sent"),
    ] {
        let policy = EgressPolicy { ports, ..lax(&["127.0.0.1/32"]) };
        let egress = egress(policy, Names::default().with("hooks.example", &[&["127.0.0.1"]]));
        for host in ["127.0.0.1", "hooks.example"] {
            assert_eq!(class(&egress, &format!("http://{host}:{port}/")).await, wanted, "{host}");
        }
    }
    assert_eq!(receiver.got().len(), 2);
}

/// A receiver that never ends its answer keeps us for 64 KiB, not for ever, and costs 4 KiB.
#[tokio::test]
async fn an_answer_is_bounded_while_it_is_read() {
    let receiver = Receiver::start(|_, _| Does::TalksForEver(200)).await;
    let limits = Limits { body: Duration::from_secs(60), ..Limits::default() };
    let egress = Egress::with(lax(&["127.0.0.1/32"]), limits, Arc::new(System), RootCertStore::empty());
    let answer = get(&egress, &receiver.url()).await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.beginning.len()), (200, 4096));
    // What the kernel takes for us is not read: it fits into two socket buffers, and then the line is dead.
    let mut before = usize::MAX;
    loop {
        let now = receiver.talked.load(std::sync::atomic::Ordering::SeqCst);
        if now == before {
            break;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(before < 16 * 1024 * 1024, "{before} bytes");
}
