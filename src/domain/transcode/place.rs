//! Uris and paths: where a source is and where an output may go.

use std::path::{Component, Path};

use url::Url;

use super::{Place, Policy};
use crate::domain::{RequesterId, origin};

/// Who asks, and what the deployment allows them.
#[derive(Clone, Copy)]
pub(super) struct Asker<'a> {
    pub(super) policy: &'a Policy,
    pub(super) requester: &'a RequesterId,
}

/// What is wrong, in words that say what would be right.
type Complaint = String;

impl Asker<'_> {
    /// Where a source is.
    pub(super) fn source(self, uri: &str) -> Result<Place, Complaint> {
        match scheme(uri).as_str() {
            "s3" => s3(uri, Key::Object),
            "file" => self.file(uri),
            "http" | "https" => self.signed(uri),
            _ => Err("must begin with s3://, https:// or file://".into()),
        }
    }

    /// Where outputs go. A prefix is a directory, with or without its last slash.
    pub(super) fn output_prefix(self, uri: &str) -> Result<Place, Complaint> {
        match scheme(uri).as_str() {
            "s3" => s3(uri, Key::Prefix),
            "file" => self.file(uri),
            "http" | "https" => {
                Err("must begin with s3:// or file://; a signed url goes to an output's upload_url".into())
            }
            _ => Err("must begin with s3:// or file://".into()),
        }
    }

    /// A signed url: only its origin is kept in clear.
    pub(super) fn signed(self, uri: &str) -> Result<Place, Complaint> {
        self.url(uri).map(|url| Place::Signed { origin: origin(&url) })
    }

    /// Any url that we are to call.
    pub(super) fn url(self, uri: &str) -> Result<Url, Complaint> {
        self.policy.egress.check(uri).map_err(|fault| fault.to_string())
    }

    /// An S3-compatible server: scheme, host, port and nothing else, for it is kept in clear.
    pub(super) fn endpoint(self, uri: &str) -> Result<String, Complaint> {
        let url = self.url(uri)?;
        if url.path() != "/" || url.query().is_some() {
            return Err("must be scheme, host and port only, such as https://s3.example.com:8443".into());
        }
        Ok(origin(&url))
    }

    /// Below `<root>/<requester_id>/`, after every escape is undone. Symbolic links are the worker's to refuse.
    fn file(self, uri: &str) -> Result<Place, Complaint> {
        if self.policy.file_roots.is_empty() {
            return Err("must begin with s3:// or https://; file:// is not served here".into());
        }
        let bad = || "must be an absolute file:///… url without a host, query or fragment".to_owned();
        let url = Url::parse(uri).map_err(|_| bad())?;
        if url.host().is_some() || url.query().is_some() || url.fragment().is_some() || uri.contains('\\') {
            return Err(bad());
        }
        let path = url.to_file_path().map_err(|()| bad())?;
        let text = path.to_str().filter(|text| !text.chars().any(char::is_control)).ok_or_else(bad)?;
        let is_ours = |root: &Path| {
            let inside = path.strip_prefix(root.join(self.requester.as_str())).ok();
            inside.is_some_and(|rest| {
                rest.components().count() > 0
                    && rest.components().all(|part| matches!(part, Component::Normal(_)))
            })
        };
        if self.policy.file_roots.iter().any(|root| is_ours(root)) {
            Ok(Place::File { path: text.to_owned() })
        } else {
            Err(format!("must lie below the directory {} of an allowed root", self.requester))
        }
    }
}

fn scheme(uri: &str) -> String {
    uri.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()).unwrap_or_default()
}

#[derive(Clone, Copy, PartialEq)]
enum Key {
    Object,
    Prefix,
}

/// `s3://bucket/key`, the key as it is: nothing in it is percent-decoded.
fn s3(uri: &str, kind: Key) -> Result<Place, Complaint> {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if !is_bucket(bucket) {
        return Err(
            "must name a bucket of 3 to 63 of a-z 0-9 . - that begins and ends with a letter or digit".into(),
        );
    }
    // Stored in clear, so a signature must not slip in.
    if key.contains('?') {
        return Err("must have no query: a signed url is https://".into());
    }
    if kind == Key::Object && key.is_empty() {
        return Err("must name an object, s3://bucket/key".into());
    }
    let key = if kind == Key::Prefix { key.trim_end_matches('/') } else { key };
    if let Some(complaint) = path_complaint(key).filter(|_| !key.is_empty()) {
        return Err(format!("its key {complaint}"));
    }
    let key = if kind == Key::Prefix && !key.is_empty() { format!("{key}/") } else { key.to_owned() };
    Ok(Place::S3 { bucket: bucket.to_owned(), key })
}

/// The rules of AWS, which every compatible server accepts.
fn is_bucket(name: &str) -> bool {
    let is_edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    (3..=63).contains(&name.len())
        && name.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-'))
        && is_edge(name.chars().next())
        && is_edge(name.chars().last())
        && !name.contains("..")
        && name.parse::<std::net::Ipv4Addr>().is_err()
}

/// What is wrong with a relative path; keys are held to the same, because clients of object storage drop or refuse
/// empty and dotted segments.
pub(super) fn path_complaint(path: &str) -> Option<Complaint> {
    let parts = || path.split('/');
    let complaint = if path.starts_with('/') {
        "must be relative, without a leading /"
    } else if path.contains('\\') {
        "must use / between its parts, not a backslash"
    } else if parts().any(|part| part == "..") {
        "must not climb with .."
    } else if parts().any(|part| part.is_empty() || part == ".") {
        "must not have an empty part (//, or a / at the end) or a part that is a dot"
    } else if parts().any(|part| part.len() > 255) {
        "must not have a part of more than 255 bytes"
    } else if path.chars().any(char::is_control) {
        "must not hold control characters"
    } else {
        return None;
    };
    Some(complaint.to_owned())
}
