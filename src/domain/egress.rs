//! Design §5.18: where we let ourselves be sent. Nothing here resolves a name: the guarded client does, and asks
//! [`EgressPolicy::allows`] again for every address it gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// What a deployment allows beyond public addresses over https.
#[derive(Debug, Clone, Default)]
pub struct EgressPolicy {
    /// Networks that are allowed although they are not public.
    pub allow: Vec<IpNet>,
    /// Plain http is allowed.
    pub allow_http: bool,
    /// Where one may knock at a host.
    pub ports: EgressPorts,
}

/// Which ports may be called. Most of what listens on another one was not made to be called by strangers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressPorts {
    /// 443 and 8443, where plain http is allowed 80 and 8080, and these.
    UsualAnd(Vec<u16>),
    /// Every port.
    Any,
}

impl Default for EgressPorts {
    fn default() -> Self {
        Self::UsualAnd(Vec::new())
    }
}

/// Why we do not go there. Never repeats the url: it may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EgressFault {
    /// It cannot be read.
    #[error("must be an absolute https:// url")]
    NotAUrl,
    /// Characters that parsers disagree about.
    #[error("must not hold spaces, control characters or backslashes; percent-encode them")]
    OddCharacters,
    /// `ftp://` and the like.
    #[error("must be an https:// url; no other scheme is served")]
    Scheme,
    /// `http://`, and the deployment does not allow it.
    #[error("must be an https:// url; plain http is not allowed here")]
    PlainHttp,
    /// `user:password@`.
    #[error("must not hold a user or password before the host")]
    UserInfo,
    /// `#part`.
    #[error("must not have a #fragment: it would never be sent")]
    Fragment,
    /// Port 0, or a host name that no resolver takes.
    #[error("must have a host name of at most 253 characters and a port of 1 to 65535")]
    HostOrPort,
    /// An address that is not public, in whatever spelling.
    #[error("must not point to an address that is not public (loopback, private, link-local, reserved)")]
    PrivateAddress,
    /// A name that only means something inside somebody's network.
    #[error("must have a public host name such as media.example.com, not a local one")]
    PrivateName,
    /// A port that is not on the list.
    #[error(
        "must use port 443 or 8443, where plain http is allowed also 80 or 8080, or one that whoever runs this service \
         allows (EUTERPE_EGRESS_PORTS)"
    )]
    Port,
}

impl EgressPolicy {
    /// Whether a connection to `address` may be made.
    #[must_use]
    pub fn allows(&self, address: IpAddr) -> bool {
        // ::ffff:10.0.0.1 is 10.0.0.1: judged, and allowed, as what it is.
        let address = address.to_canonical();
        is_public(address) || self.allow.iter().any(|net| net.contains(&address))
    }

    /// Whether a connection to `port` may be made.
    #[must_use]
    pub fn allows_port(&self, port: u16) -> bool {
        match (&self.ports, port) {
            (EgressPorts::Any, _) | (_, 443 | 8443) => true,
            (_, 80 | 8080) if self.allow_http => true,
            (EgressPorts::UsualAnd(more), port) => more.contains(&port),
        }
    }

    /// Reads a url that somebody wants us to call, or says why we will not.
    pub fn check(&self, text: &str) -> Result<Url, EgressFault> {
        // The url standard drops tabs and line ends and reads a backslash as a slash. Whoever reads the url
        // after us may not, so nothing that needs such mending is taken.
        if text.chars().any(|c| c.is_control() || c.is_whitespace() || c == '\\') {
            return Err(EgressFault::OddCharacters);
        }
        let url = Url::parse(text).map_err(|_| EgressFault::NotAUrl)?;
        // Likewise https:host and https:///host, which the standard takes for https://host.
        let has_two_slashes = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with('/'));
        if !has_two_slashes {
            return Err(EgressFault::NotAUrl);
        }
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err(EgressFault::PlainHttp),
            _ => return Err(EgressFault::Scheme),
        }
        if has_user_info(text) {
            return Err(EgressFault::UserInfo);
        }
        if url.fragment().is_some() {
            return Err(EgressFault::Fragment);
        }
        self.check_host(&url)?;
        let port = url.port_or_known_default().ok_or(EgressFault::HostOrPort)?;
        if self.allows_port(port) { Ok(url) } else { Err(EgressFault::Port) }
    }

    /// The parser has read 2130706433, 0x7f.1, 0177.0.0.1 and 127.1 as the address they are.
    fn check_host(&self, url: &Url) -> Result<(), EgressFault> {
        let address = match url.host() {
            None => return Err(EgressFault::HostOrPort),
            Some(Host::Domain(name)) if name.len() > 253 => return Err(EgressFault::HostOrPort),
            _ if url.port() == Some(0) => return Err(EgressFault::HostOrPort),
            // Who allows private networks has private names for what is in them; the addresses that such a
            // name resolves to are still looked at.
            Some(Host::Domain(name)) if is_local_name(name) && self.allow.is_empty() => {
                return Err(EgressFault::PrivateName);
            }
            Some(Host::Domain(_)) => return Ok(()),
            Some(Host::Ipv4(address)) => IpAddr::V4(address),
            Some(Host::Ipv6(address)) => IpAddr::V6(address),
        };
        if self.allows(address) { Ok(()) } else { Err(EgressFault::PrivateAddress) }
    }
}

/// Scheme, host and port: what of a secret url may be shown.
#[must_use]
pub fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

/// An `@` in the authority. Asked of the text, because an empty user leaves no trace in the parsed url.
fn has_user_info(text: &str) -> bool {
    let rest = text.split_once(':').map_or(text, |(_, rest)| rest).trim_start_matches('/');
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.contains('@')
}

/// A name without a dot, or under a domain that is never public.
#[must_use]
pub fn is_local_name(name: &str) -> bool {
    const LOCAL: &[&str] = &[
        "localhost",
        "local",
        "localdomain",
        "internal",
        "intranet",
        "private",
        "corp",
        "home",
        "lan",
        "arpa",
        "svc",
        "test",
        "invalid",
        "onion",
    ];
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    match name.rsplit_once('.') {
        None => true,
        Some((_, last)) => LOCAL.contains(&last),
    }
}

/// Whether `address` belongs to the public internet, whichever way it is wrapped.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !NOT_PUBLIC_V4.iter().any(|net| net.contains(&address)),
        // What is not listed is refused: lists of bad v6 ranges have always had a gap (::ffff:0:7f00:1, NAT64,
        // site-local, whatever comes next).
        IpAddr::V6(address) => {
            GLOBAL_UNICAST.contains(&address) && !NOT_PUBLIC_V6.iter().any(|net| net.contains(&address))
        }
    }
}

const NOT_PUBLIC_V4: &[Ipv4Net] = &[
    v4([0, 0, 0, 0], 8),       // this network
    v4([10, 0, 0, 0], 8),      // private
    v4([100, 64, 0, 0], 10),   // carrier-grade NAT
    v4([127, 0, 0, 0], 8),     // loopback
    v4([169, 254, 0, 0], 16),  // link-local, cloud metadata
    v4([172, 16, 0, 0], 12),   // private
    v4([192, 0, 0, 0], 24),    // protocol assignments
    v4([192, 0, 2, 0], 24),    // documentation
    v4([192, 88, 99, 0], 24),  // 6to4 relays
    v4([192, 168, 0, 0], 16),  // private
    v4([198, 18, 0, 0], 15),   // benchmarks
    v4([198, 51, 100, 0], 24), // documentation
    v4([203, 0, 113, 0], 24),  // documentation
    v4([224, 0, 0, 0], 4),     // multicast
    v4([240, 0, 0, 0], 4),     // reserved, broadcast
];

const GLOBAL_UNICAST: Ipv6Net = v6([0x2000, 0], 3);

/// Within global unicast, what is not public or carries a v4 address inside.
const NOT_PUBLIC_V6: &[Ipv6Net] = &[
    v6([0x2001, 0], 23),      // protocol assignments, Teredo, ORCHID
    v6([0x2001, 0x0db8], 32), // documentation
    v6([0x2002, 0], 16),      // 6to4
    v6([0x3fff, 0], 20),      // documentation
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b]: [u16; 2], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: EgressFault = EgressFault::PrivateAddress;
    const LOCAL: EgressFault = EgressFault::PrivateName;

    /// Every spelling of a place that is not public, with what is said about it.
    const REFUSED: &[(&str, EgressFault)] = &[
        // loopback, as the library functions of the last forty years read it
        ("127.0.0.1", PRIVATE),
        ("127.0.0.1.", PRIVATE),
        ("127.255.255.254", PRIVATE),
        ("127.1", PRIVATE),
        ("127.0.1", PRIVATE),
        ("2130706433", PRIVATE),
        ("017700000001", PRIVATE),
        ("0177.0.0.1", PRIVATE),
        ("0177.0.0.01", PRIVATE),
        ("0x7f.0.0.1", PRIVATE),
        ("0x7f.1", PRIVATE),
        ("0x7f000001", PRIVATE),
        ("0X7F000001", PRIVATE),
        ("0x7f.0.0x0.01", PRIVATE),
        ("%31%32%37.0.0.1", PRIVATE),
        ("127%2e0%2e0%2e1", PRIVATE),
        ("１２７.0.0.1", PRIVATE),
        ("127。0。0。1", PRIVATE),
        ("①②⑦.⓪.⓪.①", PRIVATE),
        ("0", PRIVATE),
        ("0.0.0.0", PRIVATE),
        ("0x0", PRIVATE),
        // private, link-local, shared, reserved
        ("10.0.0.1", PRIVATE),
        ("10.255.255.255", PRIVATE),
        ("012.1.2.3", PRIVATE),
        ("167772161", PRIVATE),
        ("172.16.0.1", PRIVATE),
        ("172.31.255.255", PRIVATE),
        ("192.168.1.1", PRIVATE),
        ("0xc0a80101", PRIVATE),
        ("169.254.169.254", PRIVATE),
        ("2852039166", PRIVATE),
        ("0xa9fea9fe", PRIVATE),
        ("0251.0376.0251.0376", PRIVATE),
        ("100.64.0.1", PRIVATE),
        ("100.127.255.255", PRIVATE),
        ("100.100.100.200", PRIVATE),
        ("192.0.0.170", PRIVATE),
        ("192.0.2.1", PRIVATE),
        ("192.88.99.1", PRIVATE),
        ("198.18.0.1", PRIVATE),
        ("198.19.255.255", PRIVATE),
        ("198.51.100.7", PRIVATE),
        ("203.0.113.7", PRIVATE),
        ("224.0.0.1", PRIVATE),
        ("239.255.255.250", PRIVATE),
        ("240.0.0.1", PRIVATE),
        ("255.255.255.255", PRIVATE),
        // v6, and v4 dressed as v6
        ("[::1]", PRIVATE),
        ("[0:0:0:0:0:0:0:1]", PRIVATE),
        ("[::]", PRIVATE),
        ("[::127.0.0.1]", PRIVATE),
        ("[::ffff:127.0.0.1]", PRIVATE),
        ("[::ffff:7f00:1]", PRIVATE),
        ("[0:0:0:0:0:ffff:10.0.0.1]", PRIVATE),
        ("[::ffff:0:7f00:1]", PRIVATE),
        ("[::ffff:0:127.0.0.1]", PRIVATE),
        ("[64:ff9b::127.0.0.1]", PRIVATE),
        ("[64:ff9b::8.8.8.8]", PRIVATE),
        ("[64:ff9b:1::a9fe:a9fe]", PRIVATE),
        ("[2002:7f00:1::]", PRIVATE),
        ("[2002:a9fe:a9fe::1]", PRIVATE),
        ("[2001::1]", PRIVATE),
        ("[2001:0:7f00:1::]", PRIVATE),
        ("[2001:20::1]", PRIVATE),
        ("[2001:db8::1]", PRIVATE),
        ("[3fff::1]", PRIVATE),
        ("[100::1]", PRIVATE),
        ("[5f00::1]", PRIVATE),
        ("[fc00::1]", PRIVATE),
        ("[fd00:ec2::254]", PRIVATE),
        ("[fe80::1]", PRIVATE),
        ("[fe80::5efe:7f00:1]", PRIVATE),
        ("[fec0::1]", PRIVATE),
        ("[ff02::1]", PRIVATE),
        ("[4000::1]", PRIVATE),
        // names
        ("localhost", LOCAL),
        ("LOCALHOST", LOCAL),
        ("localhost.", LOCAL),
        ("ｌｏｃａｌｈｏｓｔ", LOCAL),
        ("a.localhost", LOCAL),
        ("localhost.localdomain", LOCAL),
        ("minio", LOCAL),
        ("printer.local", LOCAL),
        ("printer.local.", LOCAL),
        ("metadata.google.internal", LOCAL),
        ("kubernetes.default.svc", LOCAL),
        ("kubernetes.default.svc.cluster.local", LOCAL),
        ("nas.home.arpa", LOCAL),
        ("router.lan", LOCAL),
        // no host at all
        ("1.2.3.4.5", EgressFault::NotAUrl),
        ("256.1.1.1", EgressFault::NotAUrl),
        ("[::1", EgressFault::NotAUrl),
        ("[fe80::1%25eth0]", EgressFault::NotAUrl),
        ("", EgressFault::NotAUrl),
        ("media.example.com:0", EgressFault::HostOrPort),
        ("media.example.com:70000", EgressFault::NotAUrl),
        ("user@media.example.com", EgressFault::UserInfo),
        ("user:pass@media.example.com", EgressFault::UserInfo),
        ("@media.example.com", EgressFault::UserInfo),
        ("media.example.com\\@127.0.0.1", EgressFault::OddCharacters),
        ("media.example.com\t", EgressFault::OddCharacters),
        ("media.exam\nple.com", EgressFault::OddCharacters),
    ];

    #[test]
    fn no_spelling_of_a_place_that_is_not_public_passes() {
        let policy = EgressPolicy::default();
        for (host, fault) in REFUSED {
            let refused = policy.check(&format!("https://{host}/hook?x=1")).map(|url| url.to_string());
            assert_eq!(refused, Err(*fault), "{host}");
        }
    }

    #[test]
    fn public_places_pass() {
        let policy = EgressPolicy::default();
        for host in [
            "media.example.com",
            "media.example.com.",
            "MEDIA.Example.com:8443",
            "bücher.example",
            "8.8.8.8",
            "134744072",
            "1.1.1.1:443",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.0.1",
            "100.128.0.1",
            "169.253.1.1",
            "198.17.0.1",
            "[2606:4700::1111]",
            "[2a00:1450:4001::8]",
            "[2001:4860:4860::8888]",
            "[::ffff:8.8.8.8]",
            "127.0.0.1.nip.io",
            "my-local.example",
            "internal.example.com",
        ] {
            assert!(policy.check(&format!("https://{host}/")).is_ok(), "{host}");
        }
    }

    #[test]
    fn what_is_allowed_is_allowed_in_every_spelling_and_nothing_beside_it() {
        let policy = EgressPolicy {
            allow: vec!["127.0.0.0/8".parse().expect("a network"), "fd00::/8".parse().expect("a network")],
            allow_http: false,
            ports: EgressPorts::UsualAnd(vec![9000]),
        };
        for host in
            ["127.0.0.1:9000", "0x7f.1", "[::ffff:127.0.0.1]", "[fd12::1]", "localhost:9000", "minio:9000"]
        {
            assert!(policy.check(&format!("https://{host}/")).is_ok(), "{host}");
        }
        for host in ["10.0.0.1", "[::1]", "[fc00::1]", "[64:ff9b::127.0.0.1]", "0.0.0.0"] {
            assert_eq!(policy.check(&format!("https://{host}/")), Err(PRIVATE), "{host}");
        }
        assert_eq!(policy.check("http://127.0.0.1/"), Err(EgressFault::PlainHttp));
    }

    #[test]
    fn only_https_passes_and_http_where_it_is_allowed() {
        let strict = EgressPolicy::default();
        let lax = EgressPolicy { allow_http: true, ..EgressPolicy::default() };
        assert_eq!(strict.check("http://media.example.com/"), Err(EgressFault::PlainHttp));
        assert!(lax.check("http://media.example.com/").is_ok());
        for scheme in ["ftp", "file", "gopher", "ws", "data", "javascript"] {
            let refused = lax.check(&format!("{scheme}://media.example.com/"));
            assert_eq!(refused, Err(EgressFault::Scheme), "{scheme}");
        }
        assert_eq!(lax.check("https://media.example.com/#x"), Err(EgressFault::Fragment));
        for text in [
            "media.example.com/hook",
            "https:media.example.com",
            "https:///media.example.com",
            "//media.example.com",
        ] {
            assert_eq!(lax.check(text), Err(EgressFault::NotAUrl), "{text}");
        }
    }

    /// Which ports pass, by what the deployment says; a port left out is that of the scheme.
    #[test]
    fn a_port_passes_when_it_is_on_the_list() {
        let with = |allow_http, ports| EgressPolicy { allow: Vec::new(), allow_http, ports };
        let (usual, minio) = (EgressPorts::default, || EgressPorts::UsualAnd(vec![9000, 1]));
        let always = ["https://a.example", "https://a.example:443", "https://a.example:8443"];
        let over_http = ["http://a.example", "http://a.example:80", "http://a.example:8080"];
        let added = ["https://a.example:9000", "https://8.8.8.8:1"];
        let others = [
            "https://a.example:22",
            "https://a.example:6379",
            "https://a.example:444",
            "https://[2606::1]:65535",
        ];
        let both = |one: &[&'static str], other: &[&'static str]| [one, other].concat();
        let (over_either, not_over_https) =
            (both(&always, &over_http), ["https://a.example:80", "https://a.example:8080"]);
        for (policy, pass, refused) in [
            (with(false, usual()), always.to_vec(), [&added[..], &others, &not_over_https].concat()),
            (with(true, usual()), over_either.clone(), both(&added, &others)),
            (with(true, minio()), both(&over_either, &added), others.to_vec()),
            (with(true, EgressPorts::Any), [&over_either[..], &added, &others].concat(), Vec::new()),
        ] {
            for url in pass {
                assert!(policy.check(url).is_ok(), "{url} {policy:?}");
            }
            for url in refused {
                assert_eq!(policy.check(url), Err(EgressFault::Port), "{url} {policy:?}");
            }
        }
        // What is said first is what stays wrong with any port.
        assert_eq!(with(false, usual()).check("https://127.0.0.1:22/"), Err(PRIVATE));
    }

    #[test]
    fn an_origin_says_nothing_of_path_or_query() {
        let url = Url::parse("https://Media.example.com:8443/secret?token=1").expect("a url");
        assert_eq!(origin(&url), "https://media.example.com:8443");
    }
}
