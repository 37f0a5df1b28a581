//! The stage of the demo: a folder with a sample shop, a resource, and one token.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use chrono::Utc;
use outport_domain::{
    caller::{Caller, Permission},
    id::{OrganizationId, TokenId, UserId},
    locale::Locale,
};
use outport_source::sample;
use outport_store::{Store, access::TokenRow};

use super::{During, Failed};
use crate::{
    command::token::store_token,
    config::{Config, Settings},
};

/// Says that a folder was made by the demo, so that the demo may make it anew.
const MARKER: &str = ".outport-demo";

/// The people of the story, fixed so that two demos can be compared.
pub(super) const COMPANY: &str = "0197a801-6a42-79aa-9e56-d3c85148c0fa";
const ORGANIZATION: &str = "0197a801-1690-7590-b3cf-19599b9be3e4";
const USER: &str = "0197a805-0910-7eb2-bae7-90a13df2a9b2";
pub(super) const EMAIL: &str = "ana@example.com";

pub(super) struct Stage {
    dir: PathBuf,
    address: SocketAddr,
}

impl Stage {
    /// Makes the folder and the sample shop.
    pub(super) fn set(dir: &Path, address: SocketAddr) -> Result<Self, Failed> {
        const STEP: &str = "making the sample shop";
        if dir.exists() {
            let used = fs::read_dir(dir).during(STEP)?.next().is_some();
            if used && !dir.join(MARKER).is_file() {
                let reason = format!(
                    "{} holds something else; name another folder with --dir",
                    dir.display()
                );
                return Err(Failed { step: STEP, reason });
            }
            fs::remove_dir_all(dir).during(STEP)?;
        }
        let made = fs::create_dir_all(dir.join("resources"));
        made.map_err(|error| format!("{}: {error}", dir.display())).during(STEP)?;
        let dir = fs::canonicalize(dir).during(STEP)?;
        fs::write(dir.join(MARKER), "made by `outport demo`; made anew by the next one\n")
            .during(STEP)?;
        fs::write(dir.join("resources/order.toml"), include_str!("order.toml")).during(STEP)?;
        let (organization, company) = (id(ORGANIZATION), id(COMPANY));
        sample::create_shop(&dir.join("shop.db"), organization, company).during(STEP)?;
        Ok(Self { dir, address })
    }

    /// The embedded profile in the demo's folder, with a broker when one is named. Nothing else
    /// is read of the environment: the demo is the same everywhere.
    pub(super) fn config(&self, broker_url: Option<&str>) -> Result<Config, Failed> {
        const STEP: &str = "reading the configuration";
        let mut settings = Settings::default();
        if let Some(url) = broker_url {
            settings.set("broker.url", url);
            settings.set("streaming.enabled", "true");
            settings.set("streaming.cloudeventsSource", "//outport/demo");
            let refund = self.dir.join("resources/refund.toml");
            fs::write(refund, include_str!("refund.toml")).during(STEP)?;
        }
        settings.set("listen", &self.address.to_string());
        settings.set("dataDir", &self.dir.display().to_string());
        settings.set("resourcesDir", &self.dir.join("resources").display().to_string());
        settings
            .set("connections.shop", &format!("sqlite://{}", self.dir.join("shop.db").display()));
        settings.set("mail.from", "Outport demo <outport@example.com>");
        Config::from_settings(settings).during(STEP)
    }

    /// Makes the one token of the demo.
    pub(super) async fn token(&self, store: &Store, locale: &str) -> Result<String, Failed> {
        let scopes: BTreeSet<String> =
            Permission::ALL.into_iter().map(|permission| permission.name().to_owned()).collect();
        let row = TokenRow {
            id: TokenId::new(),
            name: "demo".to_owned(),
            caller: Caller {
                organization: id::<OrganizationId>(ORGANIZATION),
                companies: None,
                cooperatives: None,
                user: id::<UserId>(USER),
                email: Some(EMAIL.to_owned()),
                name: Some("Ana Conceição".to_owned()),
                locale: Locale::from_tag(locale),
                scopes,
                token: None,
            },
            created_at: Utc::now(),
            expires_at: None,
            revoked_at: None,
        };
        store_token(store, row).await.during("making a token")
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn object(&self, key: &str) -> PathBuf {
        self.dir.join("objects").join(key)
    }

    pub(super) fn mails(&self) -> PathBuf {
        self.dir.join("mail")
    }
}

fn id<T: std::str::FromStr<Err: std::fmt::Debug>>(text: &str) -> T {
    text.parse().expect("the demo's own ids are UUIDs")
}
