//! HTTP by hand: what no client library would send, and what it would hide of the answer.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::api::Api;

/// Whoever waits longer for a byte waits for ever.
const HANG: Duration = Duration::from_secs(60);

/// One connection to the HTTP tier.
pub struct Raw(TcpStream);

/// An answer, as it came over the wire.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Raw {
    pub async fn to(api: &Api) -> Self {
        Self::over(TcpStream::connect(api.url.trim_start_matches("http://")).await.unwrap())
    }

    pub fn over(stream: TcpStream) -> Self {
        Self(stream)
    }

    /// What cannot be sent because the other side has hung up is not sent.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).await.is_ok()
    }

    /// The next answer; `None`: the connection was closed instead.
    pub async fn answer(&mut self) -> Option<Answer> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.byte().await?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(": ").unwrap())
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect();
        let mut answer = Answer { status, headers, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |length| length.parse().unwrap());
        for _ in 0..length {
            answer.body.push(self.byte().await?);
        }
        Some(answer)
    }

    /// Waits until the other side has closed; says how much came before.
    pub async fn until_closed(&mut self) -> usize {
        let mut count = 0;
        while self.byte().await.is_some() {
            count += 1;
        }
        count
    }

    async fn byte(&mut self) -> Option<u8> {
        // A reset is an end like any other.
        timeout(HANG, self.0.read_u8()).await.expect("neither an answer nor an end in a minute").ok()
    }
}

impl Answer {
    /// The value of a header that came once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(other, _)| other == name).map(|(_, value)| value);
        let value = values.next()?;
        assert!(values.next().is_none(), "{name} came twice");
        Some(value)
    }

    /// The code of an error in our shape, and in no other.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
        let body: Value = serde_json::from_slice(&self.body).unwrap();
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&body), ["error"], "{body}");
        assert!(
            names(&body["error"]).iter().all(|name| ["code", "message", "details"].contains(&name.as_str()))
        );
        assert!(!body["error"]["message"].as_str().unwrap().is_empty());
        body["error"]["code"].as_str().unwrap().to_owned()
    }

    /// Everything that protects a browser that was led here.
    pub fn is_protected(&self) -> bool {
        self.header("x-content-type-options") == Some("nosniff")
            && self.header("x-frame-options") == Some("DENY")
            && self.header("cache-control") == Some("no-store")
            && self.header("referrer-policy") == Some("no-referrer")
            && self.header("strict-transport-security").is_some()
            && self.header("content-security-policy").is_some_and(|policy| {
                policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'")
            })
            && self.header("x-request-id").is_some_and(|id| !id.is_empty())
    }
}
