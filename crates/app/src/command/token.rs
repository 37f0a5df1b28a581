//! `outport token`: makes, lists and revokes API tokens in the state database itself.

use std::{collections::BTreeSet, io::Write as _, process::ExitCode, str::FromStr};

use chrono::{Duration, Utc};
use clap::Subcommand;
use outport_domain::{
    caller::{Caller, Permission},
    id::{Id, OrganizationId, TokenId, UserId},
    locale::Locale,
};
use outport_store::{
    PageRequest, Store,
    access::{self, TokenRow},
};

use super::{Failure, say, terminal};
use crate::auth::token::{self, mint};

#[derive(Subcommand)]
pub(super) enum TokenCommand {
    /// Makes a token and prints its secret, this once
    Create(NewToken),
    /// Lists the tokens of an organization
    List {
        /// The organization's id
        #[arg(long, value_parser = parse_id::<outport_domain::id::kind::Organization>)]
        organization: OrganizationId,
    },
    /// Revokes a token
    Revoke {
        /// The organization's id
        #[arg(long, value_parser = parse_id::<outport_domain::id::kind::Organization>)]
        organization: OrganizationId,
        /// The token's id
        #[arg(value_parser = parse_id::<outport_domain::id::kind::Token>)]
        token: TokenId,
    },
}

#[derive(clap::Args)]
pub(super) struct NewToken {
    /// What people call it
    #[arg(long, value_parser = token::named)]
    name: String,
    /// The organization that it belongs to
    #[arg(long, value_parser = parse_id::<outport_domain::id::kind::Organization>)]
    organization: OrganizationId,
    /// Its owner: the requester of what it asks for [default: a new id]
    #[arg(long, value_parser = parse_id::<outport_domain::id::kind::User>)]
    user: Option<UserId>,
    /// Where its owner is told about exports
    #[arg(long, value_parser = token::addressed)]
    email: Option<String>,
    /// The owner's language: en, pt-BR or es
    #[arg(long, value_parser = parse_locale)]
    locale: Option<Locale>,
    /// Scopes, separated by commas
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "exports:read,exports:write,resources:read"
    )]
    scopes: Vec<String>,
    /// Days until it ends, 1 to 36500 [default: never]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: Option<u32>,
}

pub(super) async fn run(command: TokenCommand, store: &Store) -> Result<ExitCode, Failure> {
    match command {
        TokenCommand::Create(new) => create(new, store).await,
        TokenCommand::List { organization } => list(organization, store).await,
        TokenCommand::Revoke { organization, token } => {
            let mut tx = store.begin().await?;
            if !access::revoke_token(&mut tx, organization, token).await? {
                return Err(Failure::Failed("there is no such token".to_owned()));
            }
            tx.commit().await?;
            say("revoked")
        }
    }
}

async fn create(new: NewToken, store: &Store) -> Result<ExitCode, Failure> {
    let known: Vec<&str> = Permission::ALL.into_iter().map(Permission::name).collect();
    let scopes: BTreeSet<String> =
        new.scopes.into_iter().map(|scope| scope.trim().to_owned()).collect();
    if let Some(scope) = scopes.iter().find(|scope| {
        scope.is_empty() || scope.contains(|c: char| c.is_whitespace() || c.is_control())
    }) {
        return Err(Failure::Failed(format!(
            "'{scope}' is no scope; ours are {}",
            known.join(", ")
        )));
    }
    let now = Utc::now();
    let row = TokenRow {
        id: TokenId::new(),
        name: new.name,
        caller: Caller {
            organization: new.organization,
            companies: None,
            cooperatives: None,
            user: new.user.unwrap_or_default(),
            email: new.email,
            name: None,
            locale: new.locale,
            scopes,
            token: None,
        },
        created_at: now,
        expires_at: new.days.map(|days| now + Duration::days(i64::from(days))),
        revoked_at: None,
    };
    let id = row.id;
    let secret = store_token(store, row).await?;
    say(&secret).map_err(|error| {
        Failure::Failed(format!("token {id} was made and could not be shown, revoke it: {error}"))
    })
}

/// Stores a new token and returns its secret.
pub(crate) async fn store_token(
    store: &Store,
    mut row: TokenRow,
) -> Result<String, outport_store::StoreError> {
    let minted = mint();
    row.caller.token = Some(row.id);
    let mut tx = store.begin().await?;
    access::create_token(&mut tx, &row, &minted.sha256).await?;
    tx.commit().await?;
    Ok(minted.secret)
}

async fn list(organization: OrganizationId, store: &Store) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout();
    let mut after = None;
    loop {
        let page =
            access::list_tokens(store, organization, PageRequest { limit: 200, after }).await?;
        for token in page.items {
            let state = match (token.revoked_at, token.expires_at) {
                (Some(_), _) => "revoked",
                (None, Some(end)) if end <= Utc::now() => "expired",
                _ => "active",
            };
            let scopes: Vec<&str> = token.caller.scopes.iter().map(String::as_str).collect();
            let owner = token.caller.email.as_deref().unwrap_or("-");
            let (id, name, user) = (token.id, &token.name, token.caller.user);
            let scopes = scopes.join(",");
            let line = format!("{id}  {state:<8}  {name}  owner {user} {owner}  {scopes}");
            writeln!(out, "{}", terminal::text(&line))?;
        }
        after = page.next;
        if after.is_none() {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

pub(super) fn parse_id<T>(text: &str) -> Result<Id<T>, String> {
    Id::from_str(text).map_err(|_| "must be a UUID in its hyphenated form".to_owned())
}

fn parse_locale(text: &str) -> Result<Locale, String> {
    Locale::from_tag(text).ok_or_else(|| "must be en, pt-BR or es".to_owned())
}
