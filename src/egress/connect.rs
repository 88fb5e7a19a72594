//! A connection to an address that was judged, and to no other.

use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::{Host, Url};

use super::hear_out::HearOut;
use super::{Egress, Failure};

/// A name may have many addresses; a call has time for a few.
const TRIES: usize = 3;

/// Bytes to and fro, with TLS or without.
pub(super) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Egress {
    /// Connects to the first of `places` that answers; over https, the certificate must be for the host of `url`.
    pub(super) async fn connect(&self, url: &Url, places: &[SocketAddr]) -> Result<Box<dyn Wire>, Failure> {
        let stream = self.reach(places).await?;
        let _ = stream.set_nodelay(true);
        let stream = HearOut::new(stream);
        if url.scheme() != "https" {
            return Ok(Box::new(stream));
        }
        let shaken = timeout(self.limits.connect, self.tls.connect(server_name(url)?, stream)).await;
        match shaken {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(Failure::Tls(error.to_string())),
            Err(_) => Err(Failure::Tls("no handshake in time".into())),
        }
    }

    async fn reach(&self, places: &[SocketAddr]) -> Result<TcpStream, Failure> {
        let mut last = "no address".to_owned();
        for place in places.iter().take(TRIES) {
            match timeout(self.limits.connect, TcpStream::connect(place)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error.to_string(),
                Err(_) => last = "nobody answers".into(),
            }
        }
        Err(Failure::Connect(last))
    }
}

/// Whom the certificate must name: the host of the url, not the address that we found for it.
fn server_name(url: &Url) -> Result<ServerName<'static>, Failure> {
    let name = match url.host() {
        Some(Host::Domain(name)) => ServerName::try_from(name.trim_end_matches('.').to_owned()).ok(),
        Some(Host::Ipv4(address)) => Some(ServerName::from(std::net::IpAddr::V4(address))),
        Some(Host::Ipv6(address)) => Some(ServerName::from(std::net::IpAddr::V6(address))),
        None => None,
    };
    name.ok_or_else(|| Failure::Tls("the host's name cannot be in a certificate".into()))
}
