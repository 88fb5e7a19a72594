//! What is asked of the key file.
//!
//! A remedy that makes keys, given where there are some, loses what those wrap. So each trouble has a remedy of its own, and
//! new keys are for a system that has none.

use super::Check;
use super::database::Kept;
use crate::cli::Context;
use crate::crypto::{BadKeys, KeyProvider, KeyTrouble, Keyring, Peppers};
use crate::domain::Purpose;

/// `set -C`: the shell refuses to write over a file.
const NEW: &str =
    "(umask 077; set -C; euterpe kek new --pepper > keys) && export EUTERPE_KEK_FILE=\"$PWD/keys\"";
const FILE: &str = "EUTERPE_KEK_FILE";

pub(super) fn look(
    context: &Context<'_>,
    ring: &Result<Keyring, BadKeys>,
    kept: Option<&Kept>,
) -> Vec<Check> {
    let file = (context.env)(FILE);
    let keys = match ring {
        Ok(ring) => Check::good(
            "keys",
            format!(
                "{} here, {:?} seals credentials and {:?} callbacks",
                ring.ids().count(),
                ring.active_kek(Purpose::Storage),
                ring.active_kek(Purpose::Callback)
            ),
        ),
        Err(bad) => Check::bad("keys", bad.to_string(), mend_keys(&bad.trouble, file.as_deref(), kept)),
    };
    let pepper = match (Peppers::from_env(context.env), ring) {
        (Ok(_), _) => Check::good("pepper", "API keys can be hashed"),
        (Err(bad), Err(same)) if bad == *same => {
            Check::unseen("pepper", "not looked at: it should be with the keys", "see keys")
        }
        // Whoever makes the keys makes it, too.
        (Err(_), Err(none)) if none.trouble == KeyTrouble::NoneNamed => {
            Check::unseen("pepper", "none here, as there are no keys", "see keys")
        }
        (Err(bad), _) => {
            Check::bad("pepper", bad.to_string(), mend_pepper(&bad.trouble, file.as_deref(), kept))
        }
    };
    vec![keys, pepper]
}

// `echo`: the last line of a file may lack its end, and two keys on one line are none.
fn mend_keys(trouble: &KeyTrouble, file: Option<&str>, kept: Option<&Kept>) -> String {
    let sealed = kept.map(|kept| kept.keks.join(", "));
    match (trouble, sealed.as_deref()) {
        (KeyTrouble::NoneNamed, Some("")) => NEW.to_owned(),
        (KeyTrouble::NoneNamed, None) => {
            format!("export {FILE}=… if this system has keys; only if nothing was ever sealed: {NEW}")
        }
        (KeyTrouble::NoneNamed, Some(ids)) => format!(
            "get the keys back from where they are kept, then export {FILE}=…; what {ids} wraps does not open with new ones"
        ),
        (KeyTrouble::LackedByFile, Some("")) => {
            format!("(umask 077; {{ echo; euterpe kek new; }} >> {})", file.map_or("FILE".into(), quoted))
        }
        (KeyTrouble::LackedByFile, ids) => {
            let which = ids.unwrap_or("whichever the services have");
            format!("get the lines of the keys back from where they are kept: {which}")
        }
        (KeyTrouble::NoneActive(ids), _) => {
            format!("export EUTERPE_ACTIVE_KEK=…, whichever the services seal with of {}", ids.join(", "))
        }
        (KeyTrouble::UnknownActive(setting, ids), _) => match ids.as_slice() {
            [one] => format!("export {setting}={one}, or unset it"),
            several => format!("export {setting}=…, one of {}", several.join(", ")),
        },
        (trouble, _) => mend_file(trouble, file),
    }
}

fn mend_pepper(trouble: &KeyTrouble, file: Option<&str>, kept: Option<&Kept>) -> String {
    if !matches!(trouble, KeyTrouble::NoneNamed | KeyTrouble::LackedByFile) {
        return mend_file(trouble, file);
    }
    if kept.is_none_or(|kept| kept.has_api_keys) {
        let needs = "API keys that were made with another do not fit a new one";
        return format!("get its line back from where the key file is kept: {needs}");
    }
    if let Some(file) = file {
        return format!("(umask 077; {{ echo; euterpe kek new --pepper-only; }} >> {})", quoted(file));
    }
    let new = "\"$(euterpe kek new --pepper-only | cut -d' ' -f3)\"";
    format!("export EUTERPE_KEY_PEPPER={new}, and keep it where the keys are kept")
}

fn mend_file(trouble: &KeyTrouble, file: Option<&str>) -> String {
    let path = file.map_or("the key file".to_owned(), quoted);
    match trouble {
        KeyTrouble::OpenToOthers => format!("chmod 600 {path}"),
        KeyTrouble::NamedTwice => format!("unset {FILE}, or unset EUTERPE_KEKS: whichever is not meant"),
        KeyTrouble::Unreadable => {
            format!("look at the path and whose it is, ls -l {path}; then export {FILE}=…, or be its owner")
        }
        _ => "write it as docs/security.md shows, with the key as it is where it is kept".to_owned(),
    }
}

/// As a shell takes it for one word.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=@%:,".contains(c);
    if !path.is_empty() && path.chars().all(is_plain) {
        return path.to_owned();
    }
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(keks: &[&str], has_api_keys: bool) -> Kept {
        Kept { keks: keks.iter().map(ToString::to_string).collect(), has_api_keys }
    }

    /// Given anywhere else, it would be the end of the keys that are there.
    #[test]
    fn new_keys_are_a_remedy_only_where_nothing_names_any_and_nothing_is_sealed() {
        let ids = || vec!["a".to_owned(), "b".to_owned()];
        for trouble in [
            KeyTrouble::NamedTwice,
            KeyTrouble::OpenToOthers,
            KeyTrouble::Unreadable,
            KeyTrouble::NoneActive(ids()),
            KeyTrouble::UnknownActive("EUTERPE_ACTIVE_KEK", ids()),
            KeyTrouble::Unusable,
        ] {
            for kept in [None, Some(&kept(&[], false)), Some(&kept(&["a"], true))] {
                for mend in
                    [mend_keys(&trouble, Some("keys"), kept), mend_pepper(&trouble, Some("keys"), kept)]
                {
                    assert!(!mend.contains("kek new") && !mend.contains('>'), "{trouble:?}: {mend}");
                }
            }
        }
        let none = KeyTrouble::NoneNamed;
        assert_eq!(mend_keys(&none, None, Some(&kept(&[], true))), NEW);
        assert!(mend_keys(&none, None, Some(&kept(&["a"], true))).starts_with("get the keys back"));
        let may_append = mend_keys(&KeyTrouble::LackedByFile, Some("my keys"), Some(&kept(&[], false)));
        assert_eq!(may_append, "(umask 077; { echo; euterpe kek new; } >> 'my keys')");
    }

    #[test]
    fn a_path_is_one_word() {
        for (path, word) in [("/run/keys", "/run/keys"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(path), word);
        }
    }
}
