//! `outport keys`: makes master keys, hands out the external one, and re-encrypts what is stored.

use std::{
    io::{BufRead as _, Write as _},
    process::ExitCode,
};

use clap::Subcommand;
use outport_contract::{
    credentials::{self, NotOpened},
    key::{CREDENTIALS, EXTERNAL_HMAC, MasterKey},
    key_ring::KeyRing,
};
use outport_store::{Store, credentials as stored};

use super::{Failure, open_state, say};
use crate::config::{
    Config, ConfigError,
    keys::{MASTER_KEY_VARIABLE, from_environment},
};

/// What stands before the external key on its line.
const EXTERNAL_LABEL: &str = "External HMAC Key (hex): ";

#[derive(Subcommand)]
pub(super) enum KeysCommand {
    /// Prints a new master key, for the variable `APP_ENC_KEY`
    Generate,
    /// Prints the external key, for those who verify messages and files: derived from the master
    /// key in `APP_ENC_KEY`, else on one line of standard input
    ExternalHmac,
    /// Encrypts the credentials of stored connections with the current key
    Rotate,
}

/// Connections that are looked at together.
const PAGE: u64 = 200;

pub(super) async fn run(
    command: KeysCommand,
    load: impl FnOnce() -> Result<Config, ConfigError>,
) -> Result<ExitCode, Failure> {
    match command {
        KeysCommand::Generate => say(&MasterKey::generate().base64()),
        KeysCommand::ExternalHmac => {
            let text = secret(MASTER_KEY_VARIABLE)?;
            let key = MasterKey::parse(&text).map_err(|error| {
                Failure::Failed(format!("the master key cannot be used: {error}"))
            })?;
            say(&format!("{EXTERNAL_LABEL}{}", *key.derive(EXTERNAL_HMAC).hex()))
        }
        KeysCommand::Rotate => {
            let config = load()?;
            rotate(&config.keys.derive(CREDENTIALS), &open_state(&config).await?).await
        }
    }
}

/// What cannot be decrypted stays as it is, and is named: also of the current key's version, under
/// which another key may have been given.
async fn rotate(keys: &KeyRing, store: &Store) -> Result<ExitCode, Failure> {
    let current = keys.current_version();
    let (mut rotated, mut others, mut failed) = (0, 0, 0);
    let mut after = None;
    loop {
        let page = stored::page(store, after, PAGE).await?;
        after = page.last().map(|(id, _)| *id);
        if page.is_empty() {
            break;
        }
        for (id, sealed) in page {
            let owner = id.to_string();
            let is_current = credentials::key_version(&sealed) == Some(current);
            match credentials::open(keys, &owner, &sealed) {
                Ok(_) if is_current => others += 1,
                Ok(secret) => {
                    let again = credentials::seal(keys, &owner, &secret);
                    let mut tx = store.begin().await?;
                    stored::replace(&mut tx, id, &sealed, &again).await?;
                    tx.commit().await?;
                    rotated += 1;
                }
                Err(error) => {
                    let or = match error {
                        NotOpened::Forged => ", or are of another key of the same version",
                        _ => "",
                    };
                    writeln!(std::io::stderr(), "connection {id}: {error}{or}")?;
                    failed += 1;
                }
            }
        }
    }
    say(&format!("{rotated} encrypted with key {current}; {others} were already"))?;
    if failed > 0 {
        return Err(Failure::Failed(format!("{failed} cannot be decrypted and stay as they are")));
    }
    Ok(ExitCode::SUCCESS)
}

/// A key from the environment, else from one line of standard input.
pub(super) fn secret(variable: &str) -> Result<String, Failure> {
    if let Some(text) = from_environment(variable) {
        return Ok(text);
    }
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim().is_empty() {
        let reason =
            format!("there is no key: set {variable}, or give it on one line of standard input");
        return Err(Failure::Failed(reason));
    }
    Ok(line)
}

/// The digits of an external key, with or without what [`KeysCommand::ExternalHmac`] prints
/// before them.
pub(super) fn external_digits(text: &str) -> &str {
    let text = text.trim();
    text.strip_prefix(EXTERNAL_LABEL).unwrap_or(text)
}
