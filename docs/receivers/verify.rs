use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};

/// The event, or why not. `header` finds one by its name, `body` is the bytes as they came, `now` Unix seconds.
pub fn verify<'a>(
    secret: &str,
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
    now: i64,
) -> Result<serde_json::Value, &'static str> {
    let part = |name| header(name).ok_or("a header is missing");
    let (timestamp, nonce) = (part("x-euterpe-timestamp")?, part("x-euterpe-nonce")?);
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).map_err(|_| "a bad secret")?;
    let given = hex::decode(part("x-euterpe-signature")?).map_err(|_| "no signature")?;
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).map_err(|_| "a bad secret")?;
    mac.update(format!("{timestamp}.{nonce}.").as_bytes());
    mac.update(body);
    mac.verify_slice(&given).map_err(|_| "the signature does not fit")?;
    match timestamp.parse::<i64>() {
        Ok(at) if at.abs_diff(now) <= 300 => {}
        _ => return Err("the timestamp is more than 5 minutes from now"),
    }
    serde_json::from_slice(body).map_err(|_| "no JSON") // its event_id is signed; the one in the header is not
}
