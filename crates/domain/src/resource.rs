//! What may be exported: a resource declares a relation, its scope columns and its columns.
//! Read from TOML, one resource a file; a wrong file gets one error that lists all its faults.

mod declared;

use std::{collections::BTreeMap, fmt, sync::Arc};

use chrono_tz::Tz;

use crate::{
    column::{ColumnType, Digits},
    dialect::{FormulaGuard, InvalidText},
    job::Protection,
    locale::Locale,
    selection::{ColumnRef, Order, Predicate, Relation, Test},
};
use declared::Declared;

/// One exportable resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its name in requests, e.g. `order`.
    pub name: String,
    /// The configured connection that it is read through.
    pub connection: String,
    /// Where rows come from.
    pub relation: Relation,
    /// The columns that limit rows to a tenant.
    pub scope: Scope,
    /// What may be exported, in the default order.
    pub columns: Vec<Column>,
    /// The order of rows when a request names none; empty means any.
    pub order: Vec<Order>,
    /// ASCII word for object keys, e.g. `orders`.
    pub key_stem: String,
    /// Words for file names by language.
    pub file_stems: BTreeMap<Locale, String>,
    /// The zone of requests that name none.
    pub time_zone: Tz,
    /// What to do about cells that look like formulas.
    pub formula_guard: FormulaGuard,
    /// What to do about invalid text.
    pub invalid_text: InvalidText,
    /// How its files are stored; `None` where the deployment decides.
    pub protection: Option<Protection>,
    /// The name of its application in the live stream; `None` where the deployment decides.
    pub application: Option<String>,
    /// Domains that `notify.email` may have besides the requester's own address.
    pub notify_domains: Vec<String>,
}

/// The columns that limit rows to a tenant and hide deleted ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Holds the organization's id. Required: a resource without one would be shared by all.
    pub organization: ColumnRef,
    /// Holds the company's id.
    pub company: Option<ColumnRef>,
    /// Holds the cooperative's id.
    pub cooperative: Option<ColumnRef>,
    /// Not NULL when the row is deleted.
    pub deleted_at: Option<ColumnRef>,
}

impl Scope {
    /// A predicate that no row passes and that names every column of the scope, so that reading
    /// by it proves that they are there.
    pub fn nothing(&self) -> Predicate {
        let columns = [
            Some(&self.organization),
            self.company.as_ref(),
            self.cooperative.as_ref(),
            self.deleted_at.as_ref(),
        ];
        let is_null = |column: &ColumnRef| Predicate::Column {
            column: column.clone(),
            test: Test::Null,
            negated: false,
        };
        let mut all: Vec<Predicate> = columns.into_iter().flatten().map(is_null).collect();
        all.push(Predicate::Any(Vec::new()));
        Predicate::All(all)
    }
}

/// One exportable column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name in requests and, without a label, in the header.
    pub key: String,
    /// Its name in the relation.
    pub source: Arc<str>,
    /// What it holds.
    pub column_type: ColumnType,
    /// Of a decimal, where declared. Formats with types of their own need it.
    pub digits: Option<Digits>,
    /// Headers by language; the key where there is none.
    pub labels: BTreeMap<Locale, String>,
    /// The scope that a credential needs to read it.
    pub requires_scope: Option<String>,
    /// Whether it is exported when a request names no columns.
    pub default: bool,
}

impl Column {
    /// How a query names it.
    pub fn reference(&self) -> ColumnRef {
        ColumnRef { name: Arc::clone(&self.source), column_type: self.column_type }
    }

    /// Its header in a language.
    pub fn label(&self, locale: Locale) -> &str {
        self.labels.get(&locale).or_else(|| self.labels.get(&Locale::En)).unwrap_or(&self.key)
    }
}

impl Resource {
    /// The column with this key.
    pub fn column(&self, key: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.key == key)
    }

    /// The word for file names in a language.
    pub fn file_stem(&self, locale: Locale) -> &str {
        self.file_stems.get(&locale).unwrap_or(&self.key_stem)
    }

    /// Reads a resource file.
    pub fn from_toml(text: &str) -> Result<Self, InvalidResource> {
        let declared: Declared = toml::from_str(text)
            .map_err(|error| InvalidResource(vec![error.to_string().trim().to_owned()]))?;
        declared.check()
    }
}

/// Everything that is wrong with a resource file, a sentence each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidResource(pub Vec<String>);

impl fmt::Display for InvalidResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = r#"
        name = "order"
        connection = "shop"
        from = "sales.orders"
        keyStem = "orders"
        fileName = { pt-BR = "pedidos" }
        sort = ["-createdAt"]
        [scope]
        organization = "organization_id"
        company = { column = "company", type = "text" }
        [[columns]]
        key = "createdAt"
        source = "created_at"
        type = "timestamp"
        label = { pt-BR = "Criado em" }
        [[columns]]
        key = "margin"
        type = "decimal"
        requiresScope = "orders:margin"
    "#;

    #[test]
    fn a_resource_file_is_read_whole() {
        let resource = Resource::from_toml(ORDER).expect("a valid file");
        assert_eq!(resource.relation, Relation::Table(vec!["sales".into(), "orders".into()]));
        assert_eq!(resource.file_stem(Locale::PtBr), "pedidos");
        assert_eq!(resource.file_stem(Locale::Es), "orders");
        assert_eq!(resource.columns[0].label(Locale::PtBr), "Criado em");
        assert_eq!(resource.columns[0].label(Locale::Es), "createdAt");
        assert!(resource.order[0].descending);
        assert!(!resource.columns[1].default, "a guarded column is not exported unasked");
    }

    #[test]
    fn all_faults_of_a_file_are_told_at_once() {
        let text = ORDER
            .replace("\"timestamp\"", "\"instant\"")
            .replace("-createdAt", "created")
            .replace("pt-BR = \"pedidos\"", "fr = \"commandes\"");
        let InvalidResource(faults) = Resource::from_toml(&text).expect_err("three faults");
        assert_eq!(faults.len(), 3, "{faults:?}");
    }

    #[test]
    fn a_decimal_may_declare_its_digits_and_nothing_else_may() {
        let with = |digits: &str| {
            Resource::from_toml(&ORDER.replace("\"decimal\"", &format!("\"decimal\"\n{digits}")))
        };
        let resource = with("precision = 12\nscale = 2").expect("a valid file");
        assert_eq!(resource.columns[1].digits, Some(Digits { precision: 12, scale: 2 }));
        for wrong in ["precision = 0", "precision = 39", "precision = 2\nscale = 3", "scale = 2"] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
        let on_a_time = ORDER.replace("\"timestamp\"", "\"timestamp\"\nprecision = 6");
        assert!(Resource::from_toml(&on_a_time).is_err());
    }

    #[test]
    fn how_files_are_stored_is_said_by_the_resource_or_left_to_the_deployment() {
        let with = |text: &str| Resource::from_toml(&format!("protection = {text}\n{ORDER}"));
        let said = |text: &str| with(text).expect("a valid file").protection;
        assert_eq!(Resource::from_toml(ORDER).expect("a valid file").protection, None);
        assert_eq!(said("'sealed'"), Some(Protection::Sealed));
        assert_eq!(said("'none'"), Some(Protection::None));
        for wrong in ["'adapter-managed'", "'outport-sealed-v1'", "''", "true"] {
            assert!(with(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_application_has_a_name_of_a_channel() {
        let with = |name: &str| Resource::from_toml(&format!("application = '{name}'\n{ORDER}"));
        let resource = Resource::from_toml(ORDER).expect("a valid file");
        assert_eq!(resource.application, None);
        let long = "a".repeat(100);
        for name in ["Shop_1-x", "7", &long] {
            let resource = with(name).expect("a valid file");
            assert_eq!(resource.application.as_deref(), Some(name));
        }
        for name in ["", "a.b", "a b", "é", &format!("{long}a")] {
            let InvalidResource(faults) = with(name).expect_err("a fault");
            let rule = "application: must be 1 to 100 letters (a-z, A-Z), digits, '-' or '_'";
            assert_eq!(faults, [rule], "{name:?}");
        }
    }

    #[test]
    fn a_misspelt_member_is_a_fault() {
        assert!(Resource::from_toml(&ORDER.replace("keyStem", "keystem")).is_err());
    }
}
