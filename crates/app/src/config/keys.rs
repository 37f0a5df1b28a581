//! The master keys: the current one, and others that verify and decrypt.

use std::{collections::BTreeSet, path::Path};

use outport_contract::{
    key::MasterKey,
    key_ring::{FIRST_VERSION, KeyRing},
};
use outport_domain::job::Protection;

use super::{Settings, settings};

/// Where the master key is, in the environment.
pub(crate) const MASTER_KEY_VARIABLE: &str = "APP_ENC_KEY";
/// Where those who verify keep the external key they were handed.
pub(crate) const EXTERNAL_KEY_VARIABLE: &str = "EXTERNAL_HMAC_KEY";

/// One of these, for commands that need no configuration.
pub(crate) fn from_environment(variable: &str) -> Option<String> {
    std::env::var(variable).ok().filter(|text| !text.trim().is_empty())
}

/// The ring: `APP_ENC_KEY`, or in the embedded profile a key that is generated into the data
/// folder at first start, and the others.
pub(super) fn ring(s: &mut Settings, data_dir: &Path, embedded: bool) -> KeyRing<MasterKey> {
    let version = version(s);
    // Without a key there is an error, so this one is never used.
    let key = current(s, data_dir, embedded).unwrap_or_else(MasterKey::generate);
    others(s, version)
        .into_iter()
        .fold(KeyRing::new(version, key), |ring, (version, key)| ring.and(version, key))
}

/// How files are stored where their resource does not say: sealed, but for the embedded profile
/// with a key of its own making, which lies beside the files.
pub(super) fn protection(s: &mut Settings, embedded: bool) -> Protection {
    match s.optional("protection").as_deref() {
        None if embedded && s.optional("encKey").is_none() => Protection::None,
        None | Some("sealed") => Protection::Sealed,
        Some("none") => Protection::None,
        Some(_) => {
            s.wrong("protection", "must be one of none, sealed");
            Protection::Sealed
        }
    }
}

fn version(s: &mut Settings) -> u16 {
    const RULE: &str = "a version from 1 to 65535";
    let version = s.parsed("encKeyVersion", RULE).unwrap_or(FIRST_VERSION);
    if version == 0 {
        s.wrong("encKeyVersion", &format!("must be {RULE}"));
    }
    if version != FIRST_VERSION && s.optional("encKey").is_none() {
        s.wrong("encKeyVersion", "means nothing without encKey: the key in dataDir is version 1");
    }
    version
}

fn current(s: &mut Settings, data_dir: &Path, embedded: bool) -> Option<MasterKey> {
    if let Some(text) = s.optional("encKey") {
        let key = MasterKey::parse(&text);
        if let Err(error) = &key {
            s.wrong_secret("encKey", &error.to_string());
        }
        return key.ok();
    }
    if !embedded {
        s.wrong(
            "encKey",
            "must be set unless the state is an SQLite file; `outport keys generate` prints one",
        );
        return None;
    }
    match settings::key_file(data_dir) {
        Ok(key) => Some(key),
        Err(error) => {
            s.wrong("dataDir", &format!("the key file cannot be used: {error}"));
            None
        }
    }
}

fn others(s: &mut Settings, current: u16) -> Vec<(u16, MasterKey)> {
    let text = s.text("oldEncKeys");
    let mut versions = BTreeSet::from([current]);
    let mut keys = Vec::new();
    for (number, entry) in (1..).zip(text.split(',').filter(|_| !text.is_empty())) {
        match other(entry, &mut versions) {
            Ok(key) => keys.push(key),
            Err(rule) => s.wrong_secret("oldEncKeys", &format!("entry {number}: {rule}")),
        }
    }
    keys
}

/// An entry, or what is wrong with it, without any of its text.
fn other(entry: &str, versions: &mut BTreeSet<u16>) -> Result<(u16, MasterKey), String> {
    let parts = entry.split_once(':');
    let version = parts.and_then(|(version, _)| version.trim().parse().ok());
    let (Some(version @ 1..), Some((_, key))) = (version, parts) else {
        return Err("must be a version from 1 to 65535, a colon and a key in base64".to_owned());
    };
    if !versions.insert(version) {
        return Err(format!("version {version} is that of another key"));
    }
    Ok((version, MasterKey::parse(key).map_err(|error| error.to_string())?))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const OTHER: &str = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

    fn read(settings: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let mut all = Settings::for_tests();
        for (name, value) in settings {
            all.set(name, value);
        }
        Config::from_settings(all).map_err(|error| error.0)
    }

    fn faults(settings: &[(&str, &str)]) -> Vec<String> {
        read(settings).err().expect("a fault")
    }

    #[test]
    fn a_key_alone_is_version_1_and_others_stand_beside_the_current_one() {
        let versions = |settings: &[(&str, &str)]| -> Vec<u16> {
            let keys = read(settings).unwrap_or_else(|faults| panic!("{faults:?}")).keys;
            keys.iter().map(|(version, _)| version).collect()
        };
        assert_eq!(versions(&[]), [1]);
        assert_eq!(versions(&[("encKeyVersion", "3")]), [3]);
        let others = format!("1:{OTHER}, 4 : {OTHER}");
        assert_eq!(versions(&[("encKeyVersion", "3"), ("oldEncKeys", &others)]), [3, 4, 1]);
    }

    #[test]
    fn what_is_wrong_with_a_key_is_told_by_its_place_and_none_of_it_is_shown() {
        const PAIR: &str = "must be a version from 1 to 65535, a colon and a key in base64";
        for (others, rule) in [
            (OTHER.to_owned(), format!("entry 1: {PAIR}")),
            (format!("0:{OTHER}"), format!("entry 1: {PAIR}")),
            (format!("65536:{OTHER}"), format!("entry 1: {PAIR}")),
            (format!("2:{OTHER},"), format!("entry 2: {PAIR}")),
            (format!("1:{OTHER}"), "entry 1: version 1 is that of another key".to_owned()),
            (
                format!("2:{OTHER},2:{OTHER}"),
                "entry 2: version 2 is that of another key".to_owned(),
            ),
            (
                "2:c2VjcmV0".to_owned(),
                "entry 1: the key has 6 bytes once decoded; at least 32 are needed".to_owned(),
            ),
        ] {
            let told = faults(&[("oldEncKeys", &others)]);
            assert_eq!(told, [format!("oldEncKeys (OUTPORT_OLD_ENC_KEYS) {rule}")]);
        }
        for version in ["0", "65536", "-1", "one"] {
            let told = faults(&[("encKeyVersion", version)]).join("\n");
            assert!(told.starts_with("encKeyVersion (APP_ENC_KEY_VERSION)"), "{told}");
            assert!(told.contains("from 1 to 65535"), "{told}");
        }
    }

    #[test]
    fn the_key_of_the_data_folder_is_version_1() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path().display().to_string();
        let without_key = |more: &[(&str, &str)]| {
            let all = [&[("encKey", ""), ("dataDir", &*folder)][..], more].concat();
            read(&all)
        };
        let made = without_key(&[]).unwrap_or_else(|faults| panic!("{faults:?}"));
        assert_eq!(made.keys.current_version(), 1);
        assert_eq!(made.protection, Protection::None);
        let told = without_key(&[("encKeyVersion", "2")]).err().expect("a fault").join("\n");
        assert!(told.contains("the key in dataDir is version 1"), "{told}");
    }

    #[test]
    fn files_are_sealed_unless_the_key_lies_beside_them_or_somebody_says_so() {
        let protection = |settings: &[(&str, &str)]| {
            read(settings).unwrap_or_else(|faults| panic!("{faults:?}")).protection
        };
        let postgres = ("state.url", "postgres://localhost/outport");
        assert_eq!(protection(&[postgres]), Protection::Sealed);
        assert_eq!(protection(&[]), Protection::Sealed, "a key that was given");
        assert_eq!(protection(&[postgres, ("protection", "none")]), Protection::None);
        let told = faults(&[("protection", "adapter-managed")]);
        assert!(told[0].ends_with("must be one of none, sealed"), "{told:?}");
    }
}
