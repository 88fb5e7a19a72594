//! Signed urls: which part of the query is the signature, so that the same object signed anew is the same object.

use url::Url;

/// `url` without the parameters of signatures we know. What cannot be parsed stays as it is.
pub(super) fn without_signature(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    if !matches!(url.scheme(), "http" | "https") {
        return text.to_owned();
    }
    let Some(query) = url.query() else { return url.into() };
    let schemes: Vec<Scheme> = Scheme::ALL.into_iter().filter(|scheme| scheme.signed(query)).collect();
    // Cut from the text itself: writing the pairs anew would respell those that stay.
    let kept: Vec<&str> =
        query.split('&').filter(|pair| !schemes.iter().any(|scheme| scheme.owns(&name(pair)))).collect();
    let kept = kept.join("&");
    url.set_query(Some(kept.as_str()).filter(|query| !query.is_empty()));
    url.into()
}

/// A way of signing. Its parameters count as signature only where its own mark is there: `st` or `Policy` in any other
/// url may well be what tells two objects apart.
#[derive(Clone, Copy)]
enum Scheme {
    /// AWS, version 4.
    Amz,
    /// Google, version 4.
    Goog,
    /// Azure shared access signature.
    AzureSas,
    /// CloudFront, and version 2 of AWS and Google.
    Expires,
}

impl Scheme {
    const ALL: [Self; 4] = [Self::Amz, Self::Goog, Self::AzureSas, Self::Expires];

    fn signed(self, query: &str) -> bool {
        let has = |mark: &str| query.split('&').any(|pair| name(pair) == mark);
        match self {
            Self::Amz => has("x-amz-signature"),
            Self::Goog => has("x-goog-signature"),
            Self::AzureSas => has("sig") && has("sv"),
            Self::Expires => {
                has("signature") && (has("key-pair-id") || has("awsaccesskeyid") || has("googleaccessid"))
            }
        }
    }

    fn owns(self, name: &str) -> bool {
        const AZURE: &[&str] = &[
            "sv", "ss", "srt", "sp", "se", "st", "spr", "sig", "sr", "sip", "si", "skoid", "sktid", "skt",
            "ske", "sks", "skv", "saoid", "suoid", "scid", "sdd", "ses", "sduoid", "skdutid",
        ];
        const EXPIRES: &[&str] = &[
            "expires",
            "signature",
            "policy",
            "key-pair-id",
            "awsaccesskeyid",
            "googleaccessid",
            "hash-algorithm",
            "x-amz-security-token",
        ];
        match self {
            Self::Amz => name.starts_with("x-amz-"),
            Self::Goog => name.starts_with("x-goog-"),
            Self::AzureSas => AZURE.contains(&name),
            Self::Expires => EXPIRES.contains(&name),
        }
    }
}

/// The name of a pair, in lower case: servers disagree about it, and a retry may go through another client.
fn name(pair: &str) -> String {
    let (name, _) = pair.split_once('=').unwrap_or((pair, ""));
    let decoded = url::form_urlencoded::parse(name.as_bytes()).next();
    decoded.map(|(name, _)| name.to_ascii_lowercase()).unwrap_or_default()
}
