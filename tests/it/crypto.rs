//! Contract §8 (signing) and §10 (sealing), without a database: formats, bindings, keys.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use euterpe::crypto::{
    ApiKey, Binding, KeyProvider, Keyring, OpenError, Peppers, Rejected, Secret, Signed, SigningSecret,
    UnknownPepper, open, rewrap, seal, sign, verify,
};
use euterpe::domain::{JobId, Purpose, RequesterId, Sealed, SealedParts};
use proptest::prelude::*;
use uuid::Uuid;

use crate::support::requester;

/// An environment with these variables.
fn env<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
    move |name| set.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
}

/// A key of 32 equal bytes, as it stands after `id:`.
pub fn key_of(byte: u8) -> String {
    STANDARD.encode([byte; 32])
}

/// A ring with these keys; the first seals.
pub fn ring(keys: &[(&str, u8)]) -> Keyring {
    let list: Vec<_> = keys.iter().map(|(id, byte)| format!("{id}:{}", key_of(*byte))).collect();
    Keyring::from_env(env(&[("EUTERPE_KEKS", &list.join(",")), ("EUTERPE_ACTIVE_KEK", keys[0].0)])).unwrap()
}

/// A sealed secret as the database would hand it back.
struct Stored {
    encrypted: Vec<u8>,
    dek_wrapped: Vec<u8>,
    kek_id: String,
    encryption_version: i16,
}

impl Stored {
    fn parts(&self) -> SealedParts<'_> {
        SealedParts {
            encrypted: &self.encrypted,
            dek_wrapped: &self.dek_wrapped,
            kek_id: &self.kek_id,
            encryption_version: self.encryption_version,
        }
    }
}

fn stored(sealed: &Sealed) -> Stored {
    let bytes = |text: &str| hex::decode(text.strip_prefix("\\x").unwrap()).unwrap();
    Stored {
        encrypted: bytes(&sealed.encrypted),
        dek_wrapped: bytes(&sealed.dek_wrapped),
        kek_id: sealed.kek_id.clone(),
        encryption_version: sealed.encryption_version,
    }
}

/// `Secret` has no `Debug`, so `unwrap_err` does not do.
fn refusal(opened: Result<Secret, OpenError>) -> OpenError {
    opened.err().expect("it must not open")
}

#[test]
fn what_was_sealed_opens_for_its_own_binding() {
    let (keys, acme) = (ring(&[("one", 1)]), requester("acme"));
    let job = JobId::new(&acme);
    for binding in
        [Binding::storage(job, &acme, 3), Binding::callback(job, &acme), Binding::signing(&acme, 1)]
    {
        for plaintext in ["", "hunter2", &"long".repeat(10_000)] {
            let sealed = stored(&seal(&keys, &binding, &Secret::from(plaintext)));
            let opened = open(&keys, &binding, sealed.parts()).ok().unwrap();
            assert_eq!(opened.expose_str(), Some(plaintext));
        }
    }
}

/// Two secrets never share a key or a nonce, even when they are equal.
#[test]
fn sealing_twice_has_nothing_in_common() {
    let (keys, acme) = (ring(&[("one", 1)]), requester("acme"));
    let binding = Binding::storage(JobId::new(&acme), &acme, 1);
    let (one, two) = (seal(&keys, &binding, &"same".into()), seal(&keys, &binding, &"same".into()));
    let (one, two) = (stored(&one), stored(&two));
    for at in (1..one.encrypted.len() - 8).step_by(8) {
        assert_ne!(one.encrypted[at..at + 8], two.encrypted[at..at + 8]);
    }
    assert_ne!(one.dek_wrapped[1..13], two.dek_wrapped[1..13], "the nonce of the wrapping");
}

/// Whoever can write rows but has no key moves ciphertexts about. Nothing of it may open.
#[test]
fn a_ciphertext_moved_to_another_job_purpose_requester_or_version_does_not_open() {
    let (keys, acme, zenith) = (ring(&[("one", 1)]), requester("acme"), requester("zenith"));
    let (job, other) = (JobId::new(&acme), JobId::new(&acme));
    let sealed = stored(&seal(&keys, &Binding::storage(job, &acme, 2), &"credentials".into()));
    for wrong in [
        Binding::storage(other, &acme, 2),
        Binding::storage(job, &zenith, 2),
        Binding::storage(job, &acme, 3),
        Binding::storage(job, &acme, 1),
        Binding::callback(job, &acme),
        Binding::signing(&acme, 2),
    ] {
        assert_eq!(refusal(open(&keys, &wrong, sealed.parts())), OpenError::Failed, "{wrong:?}");
    }
}

/// A refresh made version 2; somebody puts the row of version 1 back, its key with it.
#[test]
fn an_older_version_put_back_does_not_open() {
    let (keys, acme) = (ring(&[("one", 1)]), requester("acme"));
    let job = JobId::new(&acme);
    let old = stored(&seal(&keys, &Binding::storage(job, &acme, 1), &"old".into()));
    let new = stored(&seal(&keys, &Binding::storage(job, &acme, 2), &"new".into()));
    let now = Binding::storage(job, &acme, 2);
    assert_eq!(refusal(open(&keys, &now, old.parts())), OpenError::Failed);
    let mixed = SealedParts { encrypted: &old.encrypted, ..new.parts() };
    assert_eq!(refusal(open(&keys, &now, mixed)), OpenError::Failed, "with the key of the new one");
    let mixed = SealedParts { dek_wrapped: &old.dek_wrapped, ..new.parts() };
    assert_eq!(refusal(open(&keys, &now, mixed)), OpenError::Failed, "with the key of the old one");
}

#[test]
fn a_flipped_bit_anywhere_and_a_cut_off_anywhere_do_not_open() {
    let (keys, acme) = (ring(&[("one", 1)]), requester("acme"));
    let binding = Binding::callback(JobId::new(&acme), &acme);
    let good = stored(&seal(&keys, &binding, &"https://example.com/hook".into()));
    for bit in 0..good.encrypted.len() * 8 {
        let mut encrypted = good.encrypted.clone();
        encrypted[bit / 8] ^= 1 << (bit % 8);
        let parts = SealedParts { encrypted: &encrypted, ..good.parts() };
        assert_eq!(refusal(open(&keys, &binding, parts)), OpenError::Failed, "bit {bit}");
    }
    for bit in 0..good.dek_wrapped.len() * 8 {
        let mut dek_wrapped = good.dek_wrapped.clone();
        dek_wrapped[bit / 8] ^= 1 << (bit % 8);
        let parts = SealedParts { dek_wrapped: &dek_wrapped, ..good.parts() };
        assert_eq!(refusal(open(&keys, &binding, parts)), OpenError::Failed, "bit {bit} of the key");
    }
    for length in 0..good.encrypted.len() {
        let parts = SealedParts { encrypted: &good.encrypted[..length], ..good.parts() };
        assert_eq!(refusal(open(&keys, &binding, parts)), OpenError::Failed, "{length} bytes");
    }
    for length in 0..good.dek_wrapped.len() {
        let parts = SealedParts { dek_wrapped: &good.dek_wrapped[..length], ..good.parts() };
        assert_eq!(refusal(open(&keys, &binding, parts)), OpenError::Failed, "{length} bytes of the key");
    }
    let parts = SealedParts { encryption_version: 2, ..good.parts() };
    assert_eq!(refusal(open(&keys, &binding, parts)), OpenError::Failed, "a format we do not have");
}

/// The two are told apart: a key that is not here is not the job's fault.
#[test]
fn a_wrong_kek_fails_and_an_unknown_one_is_named() {
    let acme = requester("acme");
    let binding = Binding::signing(&acme, 1);
    let sealed = stored(&seal(&ring(&[("one", 1)]), &binding, &"x".into()));
    assert_eq!(refusal(open(&ring(&[("one", 2)]), &binding, sealed.parts())), OpenError::Failed);
    let unknown = refusal(open(&ring(&[("two", 1)]), &binding, sealed.parts()));
    assert_eq!(unknown, OpenError::UnknownKek("one".into()));
    // The same key under another name: the name is bound, too.
    let renamed = SealedParts { kek_id: "two", ..sealed.parts() };
    assert_eq!(refusal(open(&ring(&[("two", 1)]), &binding, renamed)), OpenError::Failed);
}

#[test]
fn a_rewrapped_secret_opens_with_the_new_kek_alone_and_its_ciphertext_is_untouched() {
    let acme = requester("acme");
    let binding = Binding::storage(JobId::new(&acme), &acme, 1);
    let mut sealed = stored(&seal(&ring(&[("old", 1)]), &binding, &"credentials".into()));
    let both = ring(&[("new", 2), ("old", 1)]);
    let elsewhere = Binding::storage(JobId::new(&acme), &acme, 1);
    let refused = rewrap(&both, &elsewhere, &sealed.kek_id, &sealed.dek_wrapped).unwrap_err();
    assert_eq!(refused, OpenError::Failed, "a moved key is not made good by wrapping it anew");

    let rewrapped = rewrap(&both, &binding, &sealed.kek_id, &sealed.dek_wrapped).unwrap();
    (sealed.dek_wrapped, sealed.kek_id) = (rewrapped.dek_wrapped, rewrapped.kek_id);
    assert_eq!(sealed.kek_id, "new");
    let opened = open(&ring(&[("new", 2)]), &binding, sealed.parts()).ok().unwrap();
    assert_eq!(opened.expose_str(), Some("credentials"));
}

#[test]
fn the_golden_secrets_open_and_their_aad_is_as_written() {
    let mut opened = 0;
    for case in include_str!("golden.txt").split("\n\n").filter(|case| !case.starts_with('#')) {
        let fields: BTreeMap<_, _> = case.lines().filter_map(|line| line.split_once(' ')).collect();
        let bytes = |name: &str| hex::decode(fields[name].replace('-', "")).unwrap();
        let (who, version): (RequesterId, i32) =
            (fields["requester_id"].parse().unwrap(), fields["version"].parse().unwrap());
        let job = || JobId(fields["job_id"].parse().unwrap());
        let binding = match Purpose::parse(fields["purpose"]).unwrap() {
            Purpose::Storage => Binding::storage(job(), &who, version),
            Purpose::Callback => Binding::callback(job(), &who),
            Purpose::Signing => Binding::signing(&who, version),
        };
        assert_eq!(binding.aad(), bytes("aad"), "{case}");

        let key = format!("{}:{}", fields["kek_id"], STANDARD.encode(bytes("kek")));
        let keys = Keyring::from_env(env(&[("EUTERPE_KEKS", &key)])).unwrap();
        let (encrypted, dek_wrapped) = (bytes("encrypted"), bytes("dek_wrapped"));
        let parts = SealedParts {
            encrypted: &encrypted,
            dek_wrapped: &dek_wrapped,
            kek_id: fields["kek_id"],
            encryption_version: 1,
        };
        assert_eq!(open(&keys, &binding, parts).ok().unwrap().expose(), bytes("plaintext"), "{case}");
        opened += 1;
    }
    assert_eq!(opened, 4);
}

type Bound = (u8, u128, String, i32);

fn any_binding() -> impl Strategy<Value = Bound> {
    // Few values, so that two often agree in all but one part.
    (0..3_u8, prop_oneof![Just(0), Just(1), any::<u128>()], "[a-b0-1_]{1,3}", -1..3_i32)
}

fn bind(bound: &Bound, who: &RequesterId) -> Vec<u8> {
    let (purpose, job, _, version) = bound;
    let job = JobId(Uuid::from_u128(*job));
    match purpose {
        0 => Binding::storage(job, who, *version).aad(),
        1 => Binding::callback(job, who).aad(),
        _ => Binding::signing(who, *version).aad(),
    }
}

/// What a binding says of a secret: a callback has no version, a signing secret no job.
fn said(bound: &Bound) -> Bound {
    let (purpose, job, who, version) = bound.clone();
    match purpose {
        0 => (purpose, job, who, version),
        1 => (purpose, job, who, 1),
        _ => (purpose, 0, who, version),
    }
}

proptest! {
    #[test]
    fn two_different_bindings_never_share_an_aad(one in any_binding(), two in any_binding()) {
        let aads = [&one, &two].map(|bound| bind(bound, &bound.2.parse().unwrap()));
        prop_assert_eq!(aads[0] == aads[1], said(&one) == said(&two));
    }
}

#[test]
fn callbacks_and_signing_secrets_may_have_a_key_of_their_own() {
    let keys = format!("a:{},b:{}", key_of(1), key_of(2));
    let set =
        [("EUTERPE_KEKS", keys.as_str()), ("EUTERPE_ACTIVE_KEK", "a"), ("EUTERPE_ACTIVE_CALLBACK_KEK", "b")];
    let both = Keyring::from_env(env(&set)).unwrap();
    assert_eq!(both.active_kek(Purpose::Storage), "a");
    assert_eq!(both.active_kek(Purpose::Callback), "b");
    assert_eq!(both.active_kek(Purpose::Signing), "b");
    assert_eq!(both.ids().collect::<Vec<_>>(), ["a", "b"]);

    // A webhook pod that has b alone opens callbacks and not credentials.
    let (acme, pod) = (requester("acme"), ring(&[("b", 2)]));
    let job = JobId::new(&acme);
    let callback = stored(&seal(&both, &Binding::callback(job, &acme), &"url".into()));
    assert!(open(&pod, &Binding::callback(job, &acme), callback.parts()).is_ok());
    let credentials = Binding::storage(job, &acme, 1);
    let sealed = stored(&seal(&both, &credentials, &"key".into()));
    assert_eq!(refusal(open(&pod, &credentials, sealed.parts())), OpenError::UnknownKek("a".into()));
}

/// Each mistake has its message, and none repeats what may be a key: not even one put where its name belongs.
#[test]
fn a_bad_key_is_refused_with_a_remedy_and_never_repeated() {
    let (good, secret) = (key_of(1), key_of(77));
    let swapped = format!("{secret}:one");
    let short = STANDARD.encode([77; 31]);
    for (set, says) in [
        (vec![], "EUTERPE_KEK_FILE: is not set, nor is EUTERPE_KEKS: make a key with `euterpe kek new`"),
        (vec![("EUTERPE_KEKS", secret.clone())], "EUTERPE_KEKS: entry 1: is not id:base64"),
        (vec![("EUTERPE_KEKS", swapped)], "EUTERPE_KEKS: entry 1: the key must be base64 of 32 bytes"),
        (vec![("EUTERPE_KEKS", format!("one:{short}"))], "entry 1: the key must be base64 of 32 bytes"),
        (vec![("EUTERPE_KEKS", format!("a:{good},a:{secret}"))], "entry 2: its name is used before"),
        (vec![("EUTERPE_KEKS", format!("a b:{secret}"))], "entry 1: the id must be 1 to 64 of"),
        (
            vec![("EUTERPE_KEKS", format!("a:{good},b:{secret}"))],
            "EUTERPE_ACTIVE_KEK: is not set: say which seals of a, b",
        ),
        (
            vec![("EUTERPE_KEKS", format!("a:{good}")), ("EUTERPE_ACTIVE_KEK", secret.clone())],
            "EUTERPE_ACTIVE_KEK: names none of the keys here: a",
        ),
        (
            vec![("EUTERPE_KEKS", format!("a:{good}")), ("EUTERPE_KEK_FILE", "/nowhere".into())],
            "EUTERPE_KEKS: and EUTERPE_KEK_FILE are both set: unset one",
        ),
        (vec![("EUTERPE_KEK_FILE", "/nowhere".into())], "/nowhere: cannot be read"),
    ] {
        let set: Vec<_> = set.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let refused = Keyring::from_env(env(&set)).err().expect(says).to_string();
        assert!(refused.contains(says), "{refused:?} should say {says:?}");
        assert!(!refused.contains(&secret) && !refused.contains(&short), "{refused}");
    }
}

#[test]
fn a_key_file_is_read_unless_others_may_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    let text = format!(
        "# two keys, one pepper\nkek  2026-11  {}\nkek  2026-08  {}  # until all is rewrapped\n\npepper 1 {}\n",
        key_of(1),
        key_of(2),
        key_of(3)
    );
    std::fs::write(&path, text).unwrap();
    let set = [("EUTERPE_KEK_FILE", path.to_str().unwrap()), ("EUTERPE_ACTIVE_KEK", "2026-11")];
    for (mode, is_fine) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false)] {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(Keyring::from_env(env(&set)).is_ok(), is_fine, "{mode:o}");
        assert_eq!(Peppers::from_env(env(&set)).is_ok(), is_fine, "{mode:o}");
    }
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let refused = Keyring::from_env(env(&set)).err().unwrap().to_string();
    assert!(refused.ends_with("others may use it (mode 640): run chmod 600 on it"), "{refused}");

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, format!("kek one\n{}\n", key_of(9))).unwrap();
    let refused = Keyring::from_env(env(&set)).err().unwrap().to_string();
    assert!(refused.contains("line 1: is neither `kek ID BASE64` nor"), "{refused}");
    assert!(!refused.contains(&key_of(9)), "{refused}");

    // A key beyond the limit must not be missed in silence.
    std::fs::write(&path, format!("kek 2026-11 {}\n{}", key_of(1), "# \n".repeat(30_000))).unwrap();
    let refused = Keyring::from_env(env(&set)).err().unwrap().to_string();
    assert!(refused.ends_with("is longer than 65536 bytes: that is no key file"), "{refused}");
}

fn peppers(list: &str) -> Peppers {
    Peppers::from_env(env(&[("EUTERPE_KEY_PEPPER", list)])).unwrap()
}

fn text(key: &ApiKey) -> String {
    key.expose().expose_str().unwrap().to_owned()
}

#[test]
fn a_key_is_recognised_offline_and_a_typing_error_is_not() {
    let key = ApiKey::generate();
    let good = text(&key);
    assert_eq!(ApiKey::parse(&good).ok().unwrap().id(), key.id());
    assert!(good.starts_with(&format!("eut_{}_", key.id())) && good.len() == 68, "{} letters", good.len());
    for at in 0..good.len() {
        let mut bad = good.clone().into_bytes();
        bad[at] = if bad[at] == b'x' { b'y' } else { b'x' };
        assert!(ApiKey::parse(std::str::from_utf8(&bad).unwrap()).is_err(), "letter {at}");
        assert!(ApiKey::parse(&good[..at]).is_err(), "{at} letters");
    }
    for bad in [format!(" {good}"), format!("{good} "), good.to_uppercase(), "eut__".into(), "ü".repeat(34)]
    {
        assert!(ApiKey::parse(&bad).is_err(), "{bad}");
    }
}

#[test]
fn a_key_is_known_by_its_hash_under_its_pepper_and_by_nothing_else() {
    let (key, other) = (ApiKey::generate(), ApiKey::generate());
    let old = peppers(&key_of(1));
    let kept = old.hash(&key);
    assert_eq!(kept.pepper_version, 1);
    assert!(!text(&key).as_bytes().windows(32).any(|part| part == kept.hash), "a hash, not the key");
    assert_eq!(old.check(&key, Some((&kept.hash, 1))), Ok(true));
    assert_eq!(old.check(&other, Some((&kept.hash, 1))), Ok(false));
    assert_eq!(old.check(&key, None), Ok(false), "nothing is known of it");
    assert_eq!(peppers(&key_of(2)).check(&key, Some((&kept.hash, 1))), Ok(false), "another pepper");

    let both = peppers(&format!("1:{},2:{}", key_of(1), key_of(2)));
    assert_eq!(both.check(&key, Some((&kept.hash, 1))), Ok(true), "an old key goes on");
    assert_eq!(both.hash(&key).pepper_version, 2, "a new one gets the new pepper");
    assert_eq!(old.check(&key, Some((&kept.hash, 2))), Err(UnknownPepper(2)));
}

/// HMAC-SHA256 by Python's `hmac` over the same bytes.
#[test]
fn the_contracts_signature_is_hex_of_timestamp_dot_nonce_dot_body() {
    let secret = SigningSecret::try_from(Secret::new((0..32).collect())).ok().unwrap();
    let (nonce, body) =
        ("00112233445566778899aabbccddeeff", "{\"type\":\"transcode.queued\",\"é\":1}".as_bytes());
    let expected = "6d46d06f36713f10ea154ed4fdc81af3bd31a793189417965e175bac3d3ee52e";
    assert_eq!(sign(&secret, "1770000000", nonce, body), expected);

    let check = |timestamp: &str, nonce: &str, body: &[u8], signature: &str, now: i64| {
        verify(&secret, timestamp, nonce, body, signature, now)
    };
    for now in [1_770_000_000, 1_770_000_300, 1_769_999_700] {
        assert_eq!(check("1770000000", nonce, body, expected, now), Ok(()));
    }
    for now in [1_770_000_301, 1_769_999_699, i64::MIN, i64::MAX] {
        assert_eq!(check("1770000000", nonce, body, expected, now), Err(Rejected::Timestamp));
    }
    for (timestamp, nonce, body, signature) in [
        ("1770000001", nonce, body, expected),
        ("1770000000", "x", body, expected),
        ("1770000000", nonce, &body[1..], expected),
        ("1770000000", nonce, body, &expected[2..]),
        ("1770000000", nonce, body, "not hex"),
        ("1770000000", nonce, body, ""),
    ] {
        assert_eq!(check(timestamp, nonce, body, signature, 1_770_000_000), Err(Rejected::Signature));
    }
}

fn header<'a>(signed: &'a Signed, wanted: &str) -> &'a str {
    signed.headers().into_iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// The vector that the specification and its libraries publish.
#[test]
fn the_published_vector_of_standard_webhooks_is_ours() {
    let secret = SigningSecret::parse(concat!("whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).ok().unwrap();
    let body = br#"{"test": 2432232314}"#;
    let signed = Signed::new(&secret, &[], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
    assert_eq!(header(&signed, "webhook-id"), "msg_p5jXN8AQM9LWM0D4loKWxJek");
    assert_eq!(header(&signed, "webhook-timestamp"), "1614265330");
    assert_eq!(header(&signed, "webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

/// While a secret is rotated: one signature of the contract's, by the active secret, and two of the standard's.
#[test]
fn while_a_secret_is_rotated_a_receiver_with_either_can_verify() {
    let (old, new) = (SigningSecret::generate(), SigningSecret::generate());
    let signed = Signed::new(&old, std::slice::from_ref(&new), "evt_1", 1_770_000_000, b"{}");
    let value = |name: &str| header(&signed, name).to_owned();
    let (timestamp, nonce) = (value("x-euterpe-timestamp"), value("x-euterpe-nonce"));
    let check =
        |secret| verify(secret, &timestamp, &nonce, b"{}", &value("x-euterpe-signature"), 1_770_000_000);
    assert_eq!((check(&old), check(&new)), (Ok(()), Err(Rejected::Signature)));

    let standard: Vec<_> = [&old, &new]
        .map(|secret| {
            let theirs = standardwebhooks::Webhook::new(&secret.expose()).unwrap();
            theirs.sign("evt_1", 1_770_000_000, b"{}").unwrap()
        })
        .into();
    assert_eq!(value("webhook-signature"), standard.join(" "));
    assert_eq!(value("x-euterpe-event-id"), "evt_1");
    assert_eq!((nonce.len(), value("webhook-id").as_str()), (32, "evt_1"));

    let again = Signed::new(&old, &[], "evt_1", 1_770_000_000, b"{}");
    assert_ne!(header(&again, "x-euterpe-nonce"), nonce, "fresh with each attempt");
}

#[test]
fn a_signing_secret_is_whsec_and_base64_of_32_bytes() {
    let secret = SigningSecret::generate();
    let written = secret.expose();
    assert_eq!(STANDARD.decode(written.strip_prefix("whsec_").unwrap()).unwrap().len(), 32);
    assert_eq!(SigningSecret::parse(&written).ok().unwrap().secret().expose(), secret.secret().expose());
    for bad in ["whsec_", "whsec_AAAA", &written[6..], "whsec_!", &format!("{}=", *written)] {
        assert!(SigningSecret::parse(bad).is_err(), "{bad}");
    }
}
