//! Text that can be used but not shown.

use std::fmt;

use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::{PartialSchema, ToSchema};
use zeroize::Zeroizing;

/// A credential or a url that carries one. Prints as `…`, cannot be serialized, and is overwritten when dropped.
#[derive(Clone, Default)]
pub struct Hidden(Zeroizing<String>);

impl Hidden {
    /// Hides `text`.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself. Name the reason where you call this.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// To a client it is a string that can be sent and never comes back.
impl PartialSchema for Hidden {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Password)))
            .write_only(true)
            .into()
    }
}

impl ToSchema for Hidden {}
