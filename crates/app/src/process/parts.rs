//! The parts that a process is put together from.

use std::{path::Path, sync::Arc};

use outport_contract::{key::EXTERNAL_HMAC, link::LinkKeys};
use outport_domain::{resource::Resource, spec::Catalogue};
use outport_objects::{ObjectStore, local::LocalFolder, s3::S3Store};
use outport_relay::{
    Registry,
    broker::Figures,
    handlers::{
        Correspondence, PublishJobEvent, SendExportCompletedMessage, SendExportFailedMessage,
    },
    mail::{Mailer, Templates},
};
use outport_store::{Store, deliveries};

use super::StartError;
use crate::config::{Config, ConfigError, ObjectsConfig};

/// Makes a folder that only its owner may look into; one that is there already stays as it is.
pub(crate) fn make_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// How to write a file that only its owner may open; one that is there already stays as it is.
pub(crate) fn privately() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Connects to the state and brings its schema up to date.
pub(crate) async fn state(config: &Config) -> Result<Store, StartError> {
    let store = Store::connect(&config.state)
        .await
        .map_err(|error| StartError::new("state.url", &error))?;
    store
        .migrate()
        .await
        .map_err(|error| StartError::new("the state database cannot be migrated", &error))?;
    Ok(store)
}

pub(crate) async fn objects(config: &Config) -> Result<Arc<dyn ObjectStore>, StartError> {
    Ok(match &config.objects {
        ObjectsConfig::Folder(folder) => {
            let folder = LocalFolder::open(folder.clone()).await;
            Arc::new(folder.map_err(|error| StartError::new("objects.dir cannot be used", &error))?)
        }
        ObjectsConfig::S3(s3) => Arc::new(S3Store::connect((**s3).clone()).await),
    })
}

/// Reads every resource file; all faults of all files are told at once.
pub(crate) fn catalogue(config: &Config) -> Result<Catalogue, ConfigError> {
    let (catalogue, faults) = sound_resources(config);
    if faults.is_empty() { Ok(catalogue) } else { Err(ConfigError(faults)) }
}

/// Reads every resource file: those that can be used, and the faults of the others.
pub(crate) fn sound_resources(config: &Config) -> (Catalogue, Vec<String>) {
    let mut catalogue = Catalogue::default();
    let folder = &config.resources_dir;
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!(folder = %folder.display(), "there is no resource folder: nothing can be exported");
            return (catalogue, Vec::new());
        }
        Err(error) => {
            let fault = format!("resourcesDir: {} cannot be read: {error}", folder.display());
            return (catalogue, vec![fault]);
        }
    };
    let mut faults = Vec::new();
    let mut paths: Vec<_> =
        entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    for path in paths
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
    {
        let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        match read.and_then(|text| Resource::from_toml(&text).map_err(|error| error.to_string())) {
            Ok(resource) if catalogue.0.contains_key(&resource.name) => {
                faults.push(format!(
                    "{}: the resource '{}' is declared twice",
                    path.display(),
                    resource.name
                ));
            }
            Ok(resource)
                if !config.connections.contains_key(&resource.connection)
                    && !config.facade.stored.contains(&resource.connection) =>
            {
                faults.push(format!(
                    "{}: the connection '{}' is not configured",
                    path.display(),
                    resource.connection
                ));
            }
            Ok(resource) => {
                catalogue.0.insert(resource.name.clone(), Arc::new(resource));
            }
            Err(error) => faults.push(format!("{}: {error}", path.display())),
        }
    }
    (catalogue, faults)
}

/// All that it takes to write mails.
pub(crate) fn correspondence(
    config: &Config,
    catalogue: &Catalogue,
    link_keys: LinkKeys,
) -> Result<Correspondence, StartError> {
    let url = &config.mail_url;
    if url.may_be_read_on_the_way() {
        tracing::warn!("mail.url does not require TLS: mails may travel unprotected");
    }
    Ok(Correspondence {
        mailer: Mailer::new(url, config.mail_from.clone())
            .map_err(|error| StartError::new("mail.url", &error))?,
        templates: Templates::load().map_err(|error| StartError::new("templates", &error))?,
        public_url: config.public_url.clone(),
        link_keys,
        resources: catalogue
            .0
            .iter()
            .map(|(name, resource)| (name.clone(), (&**resource).into()))
            .collect(),
    })
}

/// Every compiled handler, that of the broker where there is one. A new one is its file and one
/// line here.
pub(super) fn registry(
    config: &Config,
    correspondence: &Arc<Correspondence>,
    broker: &Arc<Figures>,
) -> Result<Registry, StartError> {
    let mut registry = Registry::new();
    registry.register(SendExportCompletedMessage::new(Arc::clone(correspondence)))?;
    registry.register(SendExportFailedMessage::new(Arc::clone(correspondence)))?;
    if let Some(settings) = config.broker.clone() {
        let keys = config.keys.derive(EXTERNAL_HMAC);
        registry.register_batch(PublishJobEvent::new(settings, keys, Arc::clone(broker)))?;
    }
    Ok(registry)
}

/// Every role tells the store which handlers exist before it serves.
pub(super) async fn register(
    store: &Store,
    registry: &Registry,
) -> Result<(), outport_store::StoreError> {
    let mut tx = store.begin().await?;
    deliveries::register(&mut tx, &registry.rows()).await?;
    tx.commit().await?;
    let retired =
        deliveries::handlers(store).await?.into_iter().filter(|row| row.retired_at.is_some());
    for row in retired.filter(|row| registry.rows().iter().any(|own| own.name == row.name)) {
        tracing::warn!(
            handler = row.name,
            "is retired: it gets no new deliveries until `outport handler restore`"
        );
    }
    Ok(())
}
