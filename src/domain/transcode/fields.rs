//! One object of a request, read field by field. Each reader answers `None` for what is absent, null or wrong; what is
//! wrong is a fault already, so callers need not tell the cases apart.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::fault::{Faults, below};
use super::words::Word;

/// An object, where it stands, and where to complain.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    pub(super) at: String,
    pub(super) faults: &'a Faults,
}

impl<'a> Fields<'a> {
    /// Opens `value`, which must be an object with no other fields than `known`.
    pub(super) fn open(value: &'a Value, at: String, known: &[&str], faults: &'a Faults) -> Option<Self> {
        let Value::Object(map) = value else {
            faults.add(&at, format!("must be an object, {{…}}, not {}", kind(value)));
            return None;
        };
        for name in map.keys().filter(|name| !known.contains(&name.as_str())) {
            faults.add(&below(&at, name), unknown("field", name, known));
        }
        Some(Self { map, at, faults })
    }

    /// The place of a field of this object.
    pub(super) fn pointer(&self, name: &str) -> String {
        below(&self.at, name)
    }

    /// Complains about a field of this object.
    pub(super) fn fault(&self, name: &str, message: impl Into<String>) {
        self.faults.add(&self.pointer(name), message);
    }

    /// The field, unless it is absent or null: both mean "not said".
    pub(super) fn get(&self, name: &str) -> Option<&'a Value> {
        self.map.get(name).filter(|value| !value.is_null())
    }

    /// Complains when the field is not there; `hint` says what it is.
    pub(super) fn need(&self, name: &str, hint: &str) {
        if self.get(name).is_none() {
            self.fault(name, format!("is needed: {hint}"));
        }
    }

    pub(super) fn object(&self, name: &str, known: &[&str]) -> Option<Self> {
        Self::open(self.get(name)?, self.pointer(name), known, self.faults)
    }

    pub(super) fn list(&self, name: &str, length: RangeInclusive<usize>) -> Option<&'a [Value]> {
        let value = self.get(name)?;
        let Value::Array(items) = value else {
            self.fault(name, format!("must be an array, […], not {}", kind(value)));
            return None;
        };
        if !length.contains(&items.len()) {
            let (least, most) = length.into_inner();
            self.fault(name, format!("must have {least} to {most} entries, not {}", items.len()));
            return None;
        }
        Some(items)
    }

    /// A string of at most `most` bytes, without control characters.
    pub(super) fn text(&self, name: &str, most: usize) -> Option<&'a str> {
        let value = self.get(name)?;
        let Value::String(text) = value else {
            self.fault(name, format!("must be a string, not {}", kind(value)));
            return None;
        };
        match text_complaint(text, most) {
            None => Some(text),
            Some(complaint) => {
                self.fault(name, complaint);
                None
            }
        }
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        let value = self.get(name)?;
        if !value.is_boolean() {
            self.fault(name, format!("must be true or false, not {}", kind(value)));
        }
        value.as_bool()
    }

    pub(super) fn integer<T: TryFrom<i64>>(&self, name: &str, range: RangeInclusive<i64>) -> Option<T> {
        let value = self.get(name)?;
        let number = value.as_i64().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = range.into_inner();
            let given = if value.is_f64() { "a number with a fraction or out of range" } else { kind(value) };
            let not = if value.is_i64() { String::new() } else { format!(", not {given}") };
            self.fault(name, format!("must be an integer from {least} to {most}{not}"));
        }
        number.and_then(|number| T::try_from(number).ok())
    }

    pub(super) fn number(&self, name: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.get(name)?;
        let number = value.as_f64().filter(|number| range.contains(number));
        if number.is_none() {
            let (least, most) = range.into_inner();
            let not = if value.is_number() { String::new() } else { format!(", not {}", kind(value)) };
            self.fault(name, format!("must be a number from {least} to {most}{not}"));
        }
        number
    }

    pub(super) fn word<W: Word>(&self, name: &str) -> Option<W> {
        let text = self.text(name, 64)?;
        let found = W::ALL.iter().copied().find(|word| word.as_str() == text);
        if found.is_none() {
            let words: Vec<&str> = W::ALL.iter().map(|word| word.as_str()).collect();
            self.fault(name, unknown("value", text, &words));
        }
        found
    }

    pub(super) fn time(&self, name: &str) -> Option<Timestamp> {
        let text = self.text(name, 64)?;
        let time = text.parse().ok();
        if time.is_none() {
            self.fault(name, "must be a time with its offset, such as 2026-11-18T06:00:00Z (RFC 3339)");
        }
        time
    }
}

/// What is wrong with a text of ours; nothing of it is repeated.
pub(super) fn text_complaint(text: &str, most: usize) -> Option<String> {
    if text.is_empty() {
        Some("must not be empty; leave it out instead".into())
    } else if text.len() > most {
        Some(format!("must have at most {most} bytes, not {}", text.len()))
    } else if text.chars().any(char::is_control) {
        Some("must not hold control characters".into())
    } else {
        None
    }
}

/// What is accepted instead of a name we do not know. Only `known` names are repeated.
fn unknown(what: &str, given: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|name| (likeness(given, name), name))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let all = known.join(", ");
    match nearest {
        Some((_, name)) => format!("is an unknown {what}; did you mean {name}? There are: {all}"),
        None => format!("is an unknown {what}; there are: {all}"),
    }
}

/// 0 to 1. A name of which a part was left out is as near as one with a slip: `webhook_url`, `status_webhook_url`.
fn likeness(given: &str, name: &str) -> f64 {
    let is_part = given.len() >= 5 && name.contains(given);
    strsim::jaro_winkler(given, name).max(if is_part { 0.9 } else { 0.0 })
}

/// What a value is, with its article.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
