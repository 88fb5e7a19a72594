//! An error in a log.

use std::error::Error;

/// An error and all its causes in one line, as `anyhow` writes `{:#}`: tracing's JSON would write the first alone, and
/// "database unavailable" helps nobody.
#[must_use]
pub fn causes(error: &(dyn Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |&error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
