//! Resources as declared, against the databases as they are.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use outport_domain::{
    column::{ColumnType, Digits},
    resource::{Column, Resource},
    selection::{ColumnRef, Relation, Selection},
};
use outport_source::{
    Batch, Source, SourceConfig, SourceError,
    schema::{self, Description, RealColumn, Schema},
};
use tokio::sync::{OnceCell, Semaphore};

use super::{answered, naming::near};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    /// There is nothing to say.
    Fits,
    /// Exports work; it is worth a thought.
    Hint,
    /// Exports fail, or are not what was declared.
    Fault,
}

impl Weight {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fits => "ok",
            Self::Hint => "hint",
            Self::Fault => "FAIL",
        }
    }
}

/// One line about a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) weight: Weight,
    pub(super) resource: String,
    /// The member of the resource file, such as `columns.total`.
    pub(super) member: String,
    pub(super) text: String,
}

/// Resources of one database that are looked at side by side: a locked table holds up itself and
/// not those after it, and the database has few connections to spare for a check.
const LOOKS: usize = 4;

/// The databases that resources are compared with. Each is connected to once, when the first of its
/// resources is compared, so that one which does not answer is waited for once.
pub(super) struct Databases<'a> {
    databases: BTreeMap<&'a str, Database<'a>>,
    limit: Duration,
}

struct Database<'a> {
    config: &'a SourceConfig,
    looks: Semaphore,
    tried: OnceCell<Tried>,
}

struct Tried {
    source: Arc<dyn Source>,
    schema: Arc<dyn Schema>,
    reached: Result<(), String>,
}

impl<'a> Databases<'a> {
    /// `limit` is the time limit of comparing one resource.
    pub(super) fn new(connections: &'a BTreeMap<String, SourceConfig>, limit: Duration) -> Self {
        let database =
            |config| Database { config, looks: Semaphore::new(LOOKS), tried: OnceCell::new() };
        let databases = connections.iter().map(|(name, config)| (name.as_str(), database(config)));
        Self { databases: databases.collect(), limit }
    }

    /// Compares one resource with its database. At least one line. Those of one database may be
    /// compared all at once: each waits for its turn.
    pub(super) async fn compare(&self, resource: &Resource) -> Vec<Report> {
        let mut findings = Findings::default();
        match self.databases.get(resource.connection.as_str()) {
            None => {
                findings.hint("connection", "is stored by each organization and not compared");
            }
            Some(database) => self.compare_with(database, resource, &mut findings).await,
        }
        findings.of(&resource.name).collect()
    }

    async fn compare_with(
        &self,
        database: &Database<'_>,
        resource: &Resource,
        findings: &mut Findings,
    ) {
        let _turn = database.looks.acquire().await;
        let Tried { source, schema, reached } =
            database.tried.get_or_init(|| Tried::by(database.config, self.limit)).await;
        if let Err(error) = reached {
            return findings.fault("connection", error);
        }
        let compared = compare(resource, &**schema, &**source, findings);
        if let Err(late) = answered(self.limit, compared).await {
            findings.fault(member(resource), format!("{late}; is the table locked?"));
        }
    }
}

impl Tried {
    async fn by(config: &SourceConfig, limit: Duration) -> Self {
        let (source, schema) = (outport_source::connect(config), schema::schema(config));
        let reached = match answered(limit, source.check()).await {
            Ok(checked) => checked.map_err(|error| error.to_string()),
            Err(late) => Err(late),
        };
        Self { source, schema, reached }
    }
}

#[derive(Default)]
struct Findings(Vec<(Weight, String, String)>);

impl Findings {
    fn fault(&mut self, member: &str, text: impl Into<String>) {
        self.0.push((Weight::Fault, member.to_owned(), text.into()));
    }

    fn hint(&mut self, member: &str, text: impl Into<String>) {
        self.0.push((Weight::Hint, member.to_owned(), text.into()));
    }

    fn has_fault(&self) -> bool {
        self.0.iter().any(|(weight, ..)| *weight == Weight::Fault)
    }

    fn of(mut self, resource: &str) -> impl Iterator<Item = Report> {
        if !self.has_fault() {
            self.0.insert(0, (Weight::Fits, String::new(), String::new()));
        }
        let resource = resource.to_owned();
        self.0.into_iter().map(move |(weight, member, text)| Report {
            weight,
            resource: resource.clone(),
            member,
            text,
        })
    }
}

async fn compare(
    resource: &Resource,
    schema: &dyn Schema,
    source: &dyn Source,
    findings: &mut Findings,
) {
    let member = member(resource);
    match schema.describe(&resource.relation).await {
        Ok(Some(described)) => differences(resource, &described, findings),
        Ok(None) => findings.fault(member, no_table(&resource.relation, schema).await),
        Err(error) => findings.fault(member, error.to_string()),
    }
    // What no schema tells: rights, storage engines, whether the order can be made.
    if !findings.has_fault()
        && let Err(error) = read_nothing(resource, source).await
    {
        findings.fault(member, error.to_string());
    }
}

/// The member that names what is read.
const fn member(resource: &Resource) -> &'static str {
    if matches!(resource.relation, Relation::Table(_)) { "from" } else { "query" }
}

async fn no_table(relation: &Relation, schema: &dyn Schema) -> String {
    let Relation::Table(parts) = relation else { return String::new() };
    let name = parts.join(".");
    // The fault stands without this.
    let tables = schema.tables().await.unwrap_or_default();
    let last = parts.last().map(String::as_str).unwrap_or_default();
    let alike = near(last, tables.iter().map(|table| table.name.as_str()));
    let alike = tables.iter().filter(|table| alike.contains(&table.name.as_str()));
    let alike: Vec<String> =
        alike.map(|table| format!("{}.{}", table.schema, table.name)).collect();
    format!("there is no table or view '{name}'{}", perhaps(&alike))
}

/// Opens the resource's own query for no rows.
async fn read_nothing(resource: &Resource, source: &dyn Source) -> Result<(), SourceError> {
    let selection = Selection {
        relation: resource.relation.clone(),
        columns: resource.columns.iter().map(Column::reference).collect(),
        predicate: resource.scope.nothing(),
        order: resource.order.clone(),
        time_zone: resource.time_zone,
    };
    let mut rows = source.open(&selection).await?;
    rows.next(&mut Batch::new(selection.columns.len())).await.map(drop)
}

fn differences(resource: &Resource, described: &Description, findings: &mut Findings) {
    for column in &resource.columns {
        let member = format!("columns.{}", column.key);
        if let Some(real) = real(described, &column.source, &member, findings) {
            compare_type(column.column_type, real, described, &member, findings);
            compare_digits(column, real, &member, findings);
        }
    }
    let scope = &resource.scope;
    let ids = [
        ("scope.organization", Some(&scope.organization), "the whole table"),
        ("scope.company", scope.company.as_ref(), "the rows of all companies"),
        ("scope.cooperative", scope.cooperative.as_ref(), "the rows of all cooperatives"),
    ];
    let names: Vec<&str> = ids.iter().filter_map(|(_, id, _)| Some(&*(*id)?.name)).collect();
    for (member, id, read) in ids {
        let Some(ColumnRef { name, column_type }) = id else { continue };
        let Some(real) = real(described, name, member, findings) else { continue };
        compare_type(*column_type, real, described, member, findings);
        if is_unindexed(name, &names, described) {
            findings.hint(member, format!("no index begins with '{name}', so exports read {read}"));
        }
        if member == "scope.organization" && real.nullable && described.indexes.is_some() {
            findings.hint(member, format!("rows where '{name}' is NULL are nobody's"));
        }
    }
    if let Some(ColumnRef { name, .. }) = &scope.deleted_at
        && let Some(real) = real(described, name, "scope.deletedAt", findings)
        && !real.nullable
    {
        let text = format!("'{name}' is never NULL, so every row counts as deleted");
        findings.fault("scope.deletedAt", text);
    }
}

fn real<'a>(
    described: &'a Description,
    name: &str,
    member: &str,
    findings: &mut Findings,
) -> Option<&'a RealColumn> {
    let real = described.column(name);
    if real.is_none() {
        let names = described.columns.iter().map(|column| column.name.as_str());
        let alike: Vec<String> = near(name, names).iter().map(|name| format!("'{name}'")).collect();
        findings.fault(member, format!("there is no column '{name}'{}", perhaps(&alike)));
    }
    real
}

fn perhaps(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; perhaps {}", names.join(", ")) }
}

fn compare_type(
    declared: ColumnType,
    real: &RealColumn,
    described: &Description,
    member: &str,
    findings: &mut Findings,
) {
    if real.suits.contains(&declared) {
        return;
    }
    let names: Vec<&str> = real.suits.iter().map(|suiting| suiting.name()).collect();
    let RealColumn { name, type_name, .. } = real;
    let text = format!(
        "is declared {}, and '{name}' is {type_name}, which may be declared {}",
        declared.name(),
        names.join(", ")
    );
    if described.is_loosely_typed {
        findings.hint(member, text);
    } else {
        findings.fault(member, text);
    }
}

fn compare_digits(column: &Column, real: &RealColumn, member: &str, findings: &mut Findings) {
    let (Some(declared), Some(digits)) = (column.digits, real.digits) else { return };
    let whole = |digits: Digits| digits.precision - digits.scale;
    if whole(digits) > whole(declared) || digits.scale > declared.scale {
        findings.hint(
            member,
            format!(
                "declares {} digits, {} of them after the point, and '{}' is {}: values that need more fail in Parquet",
                declared.precision, declared.scale, real.name, real.type_name
            ),
        );
    }
}

/// Whether no index finds the rows of this id; one that begins with other ids does.
fn is_unindexed(name: &str, ids: &[&str], described: &Description) -> bool {
    let Some(indexes) = &described.indexes else { return false };
    let same = |a: &str, b: &str| described.column(a).is_some_and(|real| real.name == b);
    !indexes.iter().any(|index| {
        let before = index.iter().take_while(|column| !same(name, column));
        index.iter().any(|column| same(name, column))
            && before.clone().all(|column| ids.iter().any(|id| same(id, column)))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use futures::StreamExt as _;
    use outport_source::schema::TableName;
    use tokio::sync::Barrier;

    use super::*;

    const ORDER: &str = r#"
        name = "order"
        connection = "shop"
        from = "orders"
        [scope]
        organization = "organization_id"
        company = "company_id"
        deletedAt = "deleted_at"
        [[columns]]
        key = "code"
        type = "text"
        [[columns]]
        key = "total"
        type = "decimal"
        precision = 10
        scale = 2
    "#;

    fn described() -> Description {
        let column = |name: &str, suits: &[ColumnType], digits| RealColumn {
            name: name.to_owned(),
            type_name: "a type".to_owned(),
            suits: suits.to_vec(),
            digits,
            nullable: name == "deleted_at",
        };
        Description {
            columns: vec![
                column("code", &[ColumnType::Text], None),
                column("total", &[ColumnType::Decimal], Some(Digits { precision: 10, scale: 2 })),
                column("organization_id", &[ColumnType::Uuid], None),
                column("company_id", &[ColumnType::Uuid], None),
                column("deleted_at", &[ColumnType::Timestamp], None),
            ],
            primary_key: Vec::new(),
            indexes: Some(vec![vec!["organization_id".to_owned(), "company_id".to_owned()]]),
            sql: "orders".to_owned(),
            is_loosely_typed: false,
            ignores_case: false,
        }
    }

    /// What is found when one thing is changed.
    fn found(change: impl FnOnce(&mut Description)) -> Vec<(&'static str, String)> {
        let resource = Resource::from_toml(ORDER).expect("a valid file");
        let mut described = described();
        change(&mut described);
        let mut findings = Findings::default();
        differences(&resource, &described, &mut findings);
        findings.0.into_iter().map(|(weight, member, _)| (weight.name(), member)).collect()
    }

    fn one(weight: &'static str, member: &str) -> Vec<(&'static str, String)> {
        vec![(weight, member.to_owned())]
    }

    #[test]
    fn what_fits_is_not_spoken_of() {
        assert_eq!(found(|_| {}), []);
        assert_eq!(
            found(|described| described.indexes = None),
            [],
            "a view may have indexes below"
        );
    }

    #[test]
    fn every_difference_is_found_where_it_is_declared() {
        assert_eq!(
            found(|described| {
                described.columns.retain(|column| column.name != "code");
                described.columns[0].suits = vec![ColumnType::Text];
                described.columns[3].nullable = false;
                described.indexes = Some(Vec::new());
            }),
            [
                ("FAIL", "columns.code".to_owned()),
                ("FAIL", "columns.total".to_owned()),
                ("hint", "scope.organization".to_owned()),
                ("hint", "scope.company".to_owned()),
                ("FAIL", "scope.deletedAt".to_owned()),
            ]
        );
    }

    #[test]
    fn types_of_loose_columns_are_worth_a_hint() {
        let loose = found(|described| {
            described.columns[0].suits = vec![ColumnType::Integer];
            described.is_loosely_typed = true;
        });
        assert_eq!(loose, one("hint", "columns.code"));
    }

    #[test]
    fn digits_are_compared_on_both_sides_of_the_point() {
        for (precision, scale, fits) in
            [(10, 2, true), (9, 1, true), (10, 1, false), (11, 3, false)]
        {
            let found = found(|described| {
                described.columns[1].digits = Some(Digits { precision, scale });
            });
            let expected = if fits { Vec::new() } else { one("hint", "columns.total") };
            assert_eq!(found, expected, "{precision}, {scale}");
        }
    }

    #[test]
    fn an_index_serves_a_scope_column_behind_other_scope_columns_alone() {
        let with = |columns: &[&str]| {
            let index = columns.iter().map(|name| (*name).to_owned()).collect();
            found(|described| described.indexes = Some(vec![index]))
        };
        assert_eq!(with(&["company_id", "organization_id"]), []);
        assert_eq!(with(&["organization_id"]), one("hint", "scope.company"));
        assert_eq!(
            with(&["code", "organization_id", "company_id"]),
            [("hint", "scope.organization".to_owned()), ("hint", "scope.company".to_owned())]
        );
    }

    #[test]
    fn a_nullable_organization_is_worth_a_hint() {
        let found = found(|described| described.columns[2].nullable = true);
        assert_eq!(found, one("hint", "scope.organization"));
    }
    /// A database that answers nobody before it is asked by as many as may ask at once.
    struct Crowded {
        all_here: Barrier,
        asking: AtomicUsize,
        most: AtomicUsize,
    }

    #[async_trait::async_trait]
    impl Schema for Crowded {
        async fn tables(&self) -> Result<Vec<TableName>, SourceError> {
            Ok(Vec::new())
        }

        async fn describe(&self, _: &Relation) -> Result<Option<Description>, SourceError> {
            self.most.fetch_max(self.asking.fetch_add(1, SeqCst) + 1, SeqCst);
            self.all_here.wait().await;
            self.asking.fetch_sub(1, SeqCst);
            Ok(None)
        }
    }

    #[tokio::test]
    async fn a_few_resources_of_a_database_are_looked_at_at_once_and_told_in_their_order() {
        let config = SourceConfig::Sqlite { path: "nowhere.db".into() };
        let connections = BTreeMap::from([("shop".to_owned(), config.clone())]);
        let databases = Databases::new(&connections, Duration::from_secs(10));
        let (asking, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let crowded = Arc::new(Crowded { all_here: Barrier::new(LOOKS), asking, most });
        let tried = Tried {
            source: outport_source::connect(&config),
            schema: Arc::clone(&crowded) as Arc<dyn Schema>,
            reached: Ok(()),
        };
        assert!(databases.databases["shop"].tried.set(tried).is_ok());
        let named = |number: usize| ORDER.replacen("\"order\"", &format!("\"order{number}\""), 1);
        let resources = (0..2 * LOOKS).map(|number| Resource::from_toml(&named(number)));
        let resources: Vec<Resource> = resources.map(|one| one.expect("a valid file")).collect();
        let found = super::super::in_order(&databases, resources.iter());
        let found: Vec<Report> = found.map(|reports| reports[0].clone()).collect().await;
        let order: Vec<&str> = found.iter().map(|report| &*report.resource).collect();
        let expected: Vec<&str> = resources.iter().map(|resource| &*resource.name).collect();
        assert_eq!(order, expected);
        for report in &found {
            assert_eq!(report.text, "there is no table or view 'orders'", "nobody was waited for");
        }
        assert_eq!(crowded.most.load(SeqCst), LOOKS);
    }
}
