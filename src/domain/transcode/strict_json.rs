//! JSON, read more strictly than serde_json does: it keeps the last of two equal keys and stops at depth 128.
//!
//! What is no JSON at all is refused at once. What is, but should not be, becomes a fault with its place, and reading
//! goes on: the client hears of everything at once.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use zeroize::Zeroize;

use super::ErrorCode;
use super::fault::{Faults, Rejection, below};

/// Bodies are at most this long.
pub const MAX_BODY_BYTES: usize = 256 * 1024;

/// How many objects and arrays may stand inside each other. The deepest real request has five.
const MAX_DEPTH: usize = 32;

/// A body as read; its text is overwritten when it goes, because secrets are among it.
#[derive(Default)]
pub(super) struct Body(pub(super) Value);

impl Drop for Body {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(fields) => fields.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Reads a body.
pub(super) fn parse(bytes: &[u8], faults: &Faults) -> Result<Body, Rejection> {
    if bytes.len() > MAX_BODY_BYTES {
        let message = format!("the body may have at most {MAX_BODY_BYTES} bytes");
        return Err(Rejection::of(ErrorCode::BodyTooLarge, message));
    }
    let not_json = |why: String| Rejection::of(ErrorCode::InvalidJson, why);
    let text = std::str::from_utf8(bytes)
        .map_err(|error| not_json(format!("the body is not UTF-8: byte {} is wrong", error.valid_up_to())))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Node { at: String::new(), depth: 0, faults }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|error| not_json(format!("the body is not JSON: {error}")))?;
    Ok(Body(value))
}

/// Reads the value at one place.
struct Node<'a> {
    at: String,
    /// How many objects and arrays are around it.
    depth: usize,
    faults: &'a Faults,
}

impl<'a> Node<'a> {
    fn child(&self, name: &str) -> Node<'a> {
        Node { at: below(&self.at, name), depth: self.depth + 1, faults: self.faults }
    }

    fn is_too_deep(&self) -> bool {
        if self.depth == MAX_DEPTH {
            let message = format!(
                "is nested too deeply: at most {MAX_DEPTH} objects and arrays may enclose each other"
            );
            self.faults.add(&self.at, message);
        }
        self.depth >= MAX_DEPTH
    }

    fn look_for_nul(&self, text: &str) {
        if text.contains('\0') {
            self.faults.add(&self.at, "must not hold U+0000: a database cannot keep it");
        }
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        self.look_for_nul(text);
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        if self.is_too_deep() {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self.child(&list.len().to_string()))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        if self.is_too_deep() {
            while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            return Ok(Value::Null);
        }
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            let child = self.child(&name);
            child.look_for_nul(&name);
            if map.contains_key(&name) {
                self.faults.add(&child.at, "stands here twice; send it once");
            }
            let value = fields.next_value_seed(child)?;
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}
