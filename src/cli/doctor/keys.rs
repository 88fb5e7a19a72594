//! What is asked of the key file.

use super::Check;
use crate::cli::Context;
use crate::crypto::{KeyProvider, Keyring, Peppers};
use crate::domain::Purpose;

/// The checks, and the keys for those that need them.
pub(super) fn look(context: &Context<'_>) -> (Vec<Check>, Option<Keyring>) {
    let ring = Keyring::from_env(context.env);
    let keys = match &ring {
        Ok(ring) => Check::good(
            "keys",
            format!(
                "{} here, {:?} seals credentials and {:?} callbacks",
                ring.ids().count(),
                ring.active_kek(Purpose::Storage),
                ring.active_kek(Purpose::Callback)
            ),
        ),
        Err(error) => Check::bad(
            "keys",
            error.to_string(),
            "(umask 077; euterpe kek new --pepper > keys), then EUTERPE_KEK_FILE=keys",
        ),
    };
    let pepper = match Peppers::from_env(context.env) {
        Ok(_) => Check::good("pepper", "API keys can be hashed"),
        Err(error) => Check::bad(
            "pepper",
            error.to_string(),
            "euterpe kek new --pepper prints one: add it to the key file",
        ),
    };
    (vec![keys, pepper], ring.ok())
}
