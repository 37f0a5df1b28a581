//! A request parsed against its resource and its caller. Everything wrong is told at once, and
//! the same function reads the body at the API and again in the worker.

mod columns;
mod options;
mod scope;
mod split;

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{
    caller::Caller,
    dialect::CsvDialect,
    filter::{self, FilterContext},
    id::{CompanyId, CooperativeId, Id},
    job::{Compression, Format, JobScope, ScopeType},
    json::{FieldCode, FieldError, FieldErrors, JsonType, object, string, type_of},
    locale::Locale,
    resource::{Column, Resource},
    selection::{Predicate, Selection},
};
pub use columns::OutputColumn;
use scope::scope_predicate;
pub use split::Split;

/// The declared resources by name.
#[derive(Clone, Debug, Default)]
pub struct Catalogue(pub BTreeMap<String, Arc<Resource>>);

/// What a request is parsed against, besides the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The language when the body names none.
    pub locale: Locale,
    /// When it was asked.
    pub requested_at: DateTime<Utc>,
    /// What its filters were resolved to then, when it is read again: they are read in their
    /// stead.
    pub resolved_filters: Option<&'a str>,
}

/// A request that can be served.
#[derive(Clone, Debug)]
pub struct ExportSpec {
    /// What is exported.
    pub resource: Arc<Resource>,
    /// The columns in the order of the file.
    pub columns: Vec<OutputColumn>,
    /// The `filters` member as sent, `{}` when there was none.
    pub filters: String,
    /// The same with relative dates as what they meant when it was asked; `None` when there are
    /// none.
    pub resolved_filters: Option<String>,
    /// The `metadata` member as sent.
    pub metadata: Option<String>,
    /// What is read from the source.
    pub selection: Selection,
    /// What the rows are limited to.
    pub scope: JobScope,
    /// The file's format.
    pub format: Format,
    /// How the file is compressed.
    pub compression: Compression,
    /// Where one file ends and the next begins; `None` for one file.
    pub split: Option<Split>,
    /// How CSV is written.
    pub csv: CsvDialect,
    /// The language of labels, mail and file name.
    pub locale: Locale,
    /// The name that people see.
    pub file_name: String,
    /// Who gets the mail, when it is not the caller.
    pub notify_email: Option<String>,
}

const MEMBERS: [&str; 17] = [
    "resource",
    "columns",
    "filters",
    "sort",
    "scopeType",
    "companyId",
    "cooperativeId",
    "format",
    "csv",
    "compression",
    "timeZone",
    "locale",
    "fileName",
    "maxRowsPerFile",
    "maxBytesPerFile",
    "notify",
    "metadata",
];

/// Parses the body of a create-export request.
pub fn parse(
    body: &str,
    catalogue: &Catalogue,
    context: RequestContext<'_>,
) -> Result<ExportSpec, Vec<FieldError>> {
    let mut errors = FieldErrors::default();
    let raw: &RawValue = match serde_json::from_str(body) {
        Ok(raw) => raw,
        Err(error) => {
            errors.push("", FieldCode::InvalidType, format!("is not JSON: {error}"));
            return Err(errors.into_vec());
        }
    };
    let Some(members) = object(raw, "", Some(&MEMBERS), &mut errors) else {
        return Err(errors.into_vec());
    };
    let body = Body { members, context };
    let spec = body.spec(catalogue, &mut errors);
    match spec {
        Some(spec) if errors.is_empty() => Ok(spec),
        _ => Err(errors.into_vec()),
    }
}

struct Body<'a> {
    members: Vec<(String, &'a RawValue)>,
    context: RequestContext<'a>,
}

impl Body<'_> {
    /// A member's value; an explicit null is as good as absent.
    fn member(&self, name: &str) -> Option<&RawValue> {
        self.members
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| *value)
            .filter(|value| type_of(value) != JsonType::Null)
    }

    fn spec(&self, catalogue: &Catalogue, errors: &mut FieldErrors) -> Option<ExportSpec> {
        let format = self.format(errors);
        let compression = self.compression(format, errors);
        let csv = self.csv(format, errors);
        let split = self.split(format, errors);
        let locale = self.locale(errors);
        let metadata = self.metadata(errors);
        let Some(resource) = self.resource(catalogue, errors) else {
            // Without a resource, what names its columns cannot be judged.
            return None;
        };
        let time_zone = self.time_zone(errors).unwrap_or(resource.time_zone);
        let columns = self.columns(&resource, locale, errors);
        let scopes = &self.context.caller.scopes;
        let visible = |column: &Column| {
            column.requires_scope.as_ref().is_none_or(|scope| scopes.contains(scope))
        };
        let now = self.context.requested_at;
        let resolved: Option<&RawValue> =
            self.context.resolved_filters.and_then(|text| serde_json::from_str(text).ok());
        let filters = match resolved.or(self.member("filters")) {
            Some(raw) => {
                let resolved = resolved.is_some();
                let context = FilterContext { visible: &visible, zone: time_zone, now, resolved };
                filter::parse(raw, &resource, context, errors)
            }
            None => Predicate::All(Vec::new()),
        };
        let order = self.order(&resource, errors);
        let scope = self.scope(&resource, errors);
        let ending = (&*compression.extension(format), compression.suffix());
        let file_name = self.file_name(&resource, locale, time_zone, ending, errors);
        let notify_email = self.notify(&resource, errors);
        let predicate =
            Predicate::All(vec![scope_predicate(&resource, scope, self.context.caller), filters]);
        let selection = Selection {
            relation: resource.relation.clone(),
            columns: columns.iter().map(|(_, reference)| reference.clone()).collect(),
            predicate,
            order,
            time_zone,
        };
        Some(ExportSpec {
            columns: columns.into_iter().map(|(column, _)| column).collect(),
            filters: self
                .member("filters")
                .map_or_else(|| "{}".to_owned(), |raw| raw.get().to_owned()),
            resolved_filters: self
                .member("filters")
                .and_then(|raw| filter::resolved(raw, &resource, now, time_zone)),
            metadata,
            selection,
            scope,
            format,
            compression,
            split,
            csv,
            locale,
            file_name: file_name?,
            notify_email,
            resource,
        })
    }

    fn resource(&self, catalogue: &Catalogue, errors: &mut FieldErrors) -> Option<Arc<Resource>> {
        let Some(raw) = self.member("resource") else {
            errors.push("resource", FieldCode::Required, "is required");
            return None;
        };
        let name = string(raw, "resource", errors)?;
        let resource = catalogue.0.get(&name).cloned();
        if resource.is_none() {
            errors.push("resource", FieldCode::NotFound, "there is no such resource");
        }
        resource
    }

    fn scope(&self, resource: &Resource, errors: &mut FieldErrors) -> JobScope {
        let caller = self.context.caller;
        let company: Option<CompanyId> = self.uuid("companyId", errors);
        let cooperative: Option<CooperativeId> = self.uuid("cooperativeId", errors);
        let asked = self.named(
            "scopeType",
            ScopeType::from_name,
            "ORGANIZATION, COMPANY or COOPERATIVE",
            errors,
        );
        let scope_type = asked.unwrap_or(match (company, cooperative) {
            (Some(_), _) => ScopeType::Company,
            (None, Some(_)) => ScopeType::Cooperative,
            (None, None) => ScopeType::Organization,
        });
        let wants = |field: &str, given: bool, wanted: bool, errors: &mut FieldErrors| {
            if wanted && !given && self.member(field).is_none() {
                errors.push(
                    field,
                    FieldCode::Required,
                    format!("is required with scopeType {}", scope_type.name()),
                );
            } else if given && !wanted {
                let message = format!("must be absent with scopeType {}", scope_type.name());
                errors.push(field, FieldCode::InvalidValue, message);
            }
        };
        wants("companyId", company.is_some(), scope_type == ScopeType::Company, errors);
        wants("cooperativeId", cooperative.is_some(), scope_type == ScopeType::Cooperative, errors);
        let declared = match scope_type {
            ScopeType::Organization => true,
            ScopeType::Company => resource.scope.company.is_some(),
            ScopeType::Cooperative => resource.scope.cooperative.is_some(),
        };
        if !declared {
            let message =
                format!("resource '{}' has no scope {}", resource.name, scope_type.name());
            errors.push("scopeType", FieldCode::NotSupported, message);
        }
        // What the caller may not see is as good as not there.
        if company.is_some_and(|id| caller.companies.as_ref().is_some_and(|own| !own.contains(&id)))
        {
            errors.push("companyId", FieldCode::NotFound, "there is no such company");
        }
        if cooperative
            .is_some_and(|id| caller.cooperatives.as_ref().is_some_and(|own| !own.contains(&id)))
        {
            errors.push("cooperativeId", FieldCode::NotFound, "there is no such cooperative");
        }
        let cannot_restrict = caller.is_restricted()
            && !(caller.companies.is_some() && resource.scope.company.is_some())
            && !(caller.cooperatives.is_some() && resource.scope.cooperative.is_some());
        if cannot_restrict {
            errors.push(
                "resource",
                FieldCode::NotAllowed,
                "holds rows of the whole organization, and this caller may see only some companies or cooperatives",
            );
        }
        JobScope { scope_type, organization: caller.organization, company, cooperative }
    }

    fn uuid<T>(&self, field: &str, errors: &mut FieldErrors) -> Option<Id<T>> {
        let text = string(self.member(field)?, field, errors)?;
        let id = Uuid::try_parse(&text).ok().filter(|_| text.len() == 36).map(Id::from_uuid);
        if id.is_none() {
            errors.push(field, FieldCode::InvalidValue, "must be a UUID in its hyphenated form");
        }
        id
    }

    fn named<T>(
        &self,
        field: &str,
        find: impl Fn(&str) -> Option<T>,
        expected: &str,
        errors: &mut FieldErrors,
    ) -> Option<T> {
        let text = string(self.member(field)?, field, errors)?;
        let found = find(&text);
        if found.is_none() {
            errors.push(field, FieldCode::InvalidValue, format!("must be {expected}"));
        }
        found
    }
}
