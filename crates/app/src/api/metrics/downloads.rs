//! Downloads that the store stood in the way of.

use outport_contract::sealed::NotOpened;
use outport_objects::ObjectError;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};

/// All reasons, so that each is shown before it is first needed.
const REASONS: [&str; 4] = ["damaged", "missing", "unknown-key", "unreachable"];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Broken {
    reason: &'static str,
}

/// What is counted of downloads. Clones count the same.
#[derive(Clone, Debug)]
pub struct DownloadFigures {
    broken: Family<Broken, Counter>,
}

impl DownloadFigures {
    /// Figures that a registry shows.
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let broken = Family::<Broken, Counter>::default();
        for reason in REASONS {
            drop(broken.get_or_create(&Broken { reason }));
        }
        registry.register(
            "downloads_broken",
            "Downloads that were refused or broke off for what the object store gave, by reason",
            broken.clone(),
        );
        Self { broken }
    }

    /// Counts a download that this ended, before its first byte or after.
    pub fn broken(&self, error: &ObjectError) {
        self.broken.get_or_create(&Broken { reason: reason(error) }).inc();
    }
}

const fn reason(error: &ObjectError) -> &'static str {
    match error {
        ObjectError::NotOpened(NotOpened::UnknownKey(_)) => "unknown-key",
        ObjectError::NotOpened(_) | ObjectError::Sealed => "damaged",
        ObjectError::NotFound => "missing",
        ObjectError::Unreachable(_)
        | ObjectError::Refused { .. }
        | ObjectError::Full(_)
        | ObjectError::NotWritable(_)
        | ObjectError::Failed(_) => "unreachable",
    }
}
