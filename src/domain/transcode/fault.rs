//! What is wrong with a request, said all at once: where, and what would be right.

use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ErrorCode;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Fault {
    /// Where, as a JSON pointer (RFC 6901) into the request; empty: the whole of it.
    #[schema(example = "/outputs/0/path")]
    pub pointer: String,
    /// What would be acceptable there. Never repeats a value of the request: it may be a secret.
    #[schema(example = "must not climb with ..; write a path below output_prefix")]
    pub message: String,
}

/// A request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Rejection {
    /// The kind of refusal.
    pub code: ErrorCode,
    /// In a sentence.
    pub message: String,
    /// Each thing that is wrong, in the order it was found.
    pub faults: Vec<Fault>,
}

impl Rejection {
    pub(super) fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), faults: Vec::new() }
    }
}

/// Collects faults while a request is read.
///
/// Behind a `RefCell`, so that the readers of nested objects can share it without handing it around.
#[derive(Debug, Default)]
pub(super) struct Faults {
    found: RefCell<Vec<Fault>>,
}

impl Faults {
    /// A hostile request may have thousands; nobody mends more than these at once.
    pub(super) const SHOWN: usize = 50;

    /// Longer names than any of ours are cut: a pointer goes back to the client and into logs.
    const POINTER_CHARS: usize = 200;

    pub(super) fn add(&self, pointer: &str, message: impl Into<String>) {
        let pointer: String = pointer.chars().take(Self::POINTER_CHARS).collect();
        let mut found = self.found.borrow_mut();
        // What follows from a fault, at its place or inside it, is not said as well.
        let is_new = found.iter().all(|fault| !is_within(&pointer, &fault.pointer));
        if is_new && found.len() <= Self::SHOWN {
            found.push(Fault { pointer, message: message.into() });
        }
    }

    /// Something was said about this very place.
    pub(super) fn has(&self, pointer: &str) -> bool {
        self.found.borrow().iter().any(|fault| fault.pointer == pointer)
    }

    /// What was made where nothing was wrong, or the refusal that says what was.
    pub(super) fn verdict<T>(self, made: Option<T>) -> Result<T, Rejection> {
        let mut faults = self.found.into_inner();
        if faults.is_empty() {
            // Only a reader that forgot to say what is wrong leads here without anything made.
            return made.ok_or_else(|| Rejection::of(ErrorCode::Internal, "the request could not be judged"));
        }
        let message = match faults.len() {
            1 => "one thing in the request is wrong".to_owned(),
            n if n <= Self::SHOWN => format!("{n} things in the request are wrong"),
            _ => format!("more than {} things in the request are wrong; these are the first", Self::SHOWN),
        };
        faults.truncate(Self::SHOWN);
        Err(Rejection { code: ErrorCode::InvalidRequest, message, faults })
    }
}

fn is_within(pointer: &str, outer: &str) -> bool {
    pointer.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The pointer of `name` inside `parent`.
pub(super) fn below(parent: &str, name: &str) -> String {
    format!("{parent}/{}", name.replace('~', "~0").replace('/', "~1"))
}
