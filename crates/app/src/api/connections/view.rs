//! The JSON forms of connections. What is secret has no member here.

use std::time::Duration;

use outport_contract::{
    redaction::{Chain, redact},
    time::Instant,
};
use outport_domain::{connection::Connection, json::FieldError, selection::Relation};
use outport_pipeline::fetcher::Fault;
use outport_source::{SourceError, schema::Schema};
use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;
use uuid::Uuid;

/// A stored connection.
#[derive(Serialize, ToSchema)]
#[schema(as = StoredConnection)]
#[serde(rename_all = "camelCase")]
pub struct ConnectionView {
    id: Uuid,
    config_name: String,
    /// The product that it was stored for.
    #[serde(skip_serializing_if = "Option::is_none")]
    product_name: Option<String>,
    /// `POSTGRESQL` or `MYSQL`.
    #[serde(rename = "type")]
    kind: &'static str,
    host: String,
    port: u16,
    database_name: String,
    user_name: String,
    /// The only schema that unqualified tables are looked for in.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<String>,
    ssl: TlsView,
    #[schema(value_type = Object)]
    metadata: Box<RawValue>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    #[schema(value_type = String, format = DateTime)]
    updated_at: Instant,
}

/// How the way to a database is encrypted.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionTls)]
struct TlsView {
    mode: &'static str,
    /// PEM of the authority.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca: Option<String>,
    /// PEM of the client's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    cert: Option<String>,
}

impl ConnectionView {
    pub fn new(connection: Connection) -> Self {
        let metadata = connection.metadata.and_then(|text| RawValue::from_string(text).ok());
        let empty = || RawValue::from_string("{}".to_owned()).expect("an empty object is JSON");
        Self {
            id: connection.id.uuid(),
            config_name: connection.name,
            product_name: connection.product,
            kind: connection.kind.name(),
            host: connection.host,
            port: connection.port,
            database_name: connection.database,
            user_name: connection.username,
            schema: connection.schema,
            ssl: TlsView {
                mode: connection.tls_mode.name(),
                ca: connection.tls_ca,
                cert: connection.tls_certificate,
            },
            metadata: metadata.unwrap_or_else(empty),
            created_at: connection.created_at.into(),
            updated_at: connection.updated_at.into(),
        }
    }
}

/// A page of connections.
#[derive(Serialize, ToSchema)]
#[schema(as = StoredConnectionPage)]
pub struct ConnectionPageView {
    pub page: u32,
    pub limit: u32,
    /// On all pages.
    pub total: u64,
    pub items: Vec<ConnectionView>,
}

/// What a test came to.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionTest)]
#[serde(rename_all = "camelCase")]
pub struct TestView {
    /// `success` or `failure`.
    status: &'static str,
    message: String,
    /// Milliseconds of connecting.
    latency_ms: u64,
}

impl TestView {
    pub fn new<E: std::error::Error + 'static>(checked: Result<(), E>, took: Duration) -> Self {
        let latency_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        match checked {
            Ok(()) => {
                Self { status: "success", message: "Connection successful".to_owned(), latency_ms }
            }
            Err(error) => {
                let told = redact(&Chain(&error).to_string());
                tracing::info!(error = told, "a connection was tested and failed");
                Self { status: "failure", message: redact(&error.to_string()), latency_ms }
            }
        }
    }
}

/// What a connection's database holds.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionSchema)]
#[serde(rename_all = "camelCase")]
pub struct SchemaView {
    id: Uuid,
    config_name: String,
    database_name: String,
    #[serde(rename = "type")]
    kind: &'static str,
    tables: Vec<TableView>,
}

/// A table or view.
#[derive(Serialize, ToSchema)]
#[schema(as = ConnectionTable)]
pub struct TableView {
    /// After the name of its schema and a dot, unless it is the default one.
    name: String,
    fields: Vec<String>,
}

impl SchemaView {
    pub fn new(connection: &Connection, tables: Vec<TableView>) -> Self {
        Self {
            id: connection.id.uuid(),
            config_name: connection.name.clone(),
            database_name: connection.database.clone(),
            kind: connection.kind.name(),
            tables,
        }
    }
}

/// The tables and views of a database by the names that requests find them by.
pub async fn schema_of(
    schema: &dyn Schema,
    default_schema: Option<&str>,
) -> Result<Vec<TableView>, SourceError> {
    let mut tables = Vec::new();
    for table in schema.tables().await? {
        let name = if default_schema == Some(&table.schema) {
            table.name.clone()
        } else {
            format!("{}.{}", table.schema, table.name)
        };
        let relation = Relation::Table(vec![table.schema, table.name]);
        // It may be gone by now.
        let Some(described) = schema.describe(&relation).await? else { continue };
        let fields = described.columns.into_iter().map(|column| column.name).collect();
        tables.push(TableView { name, fields });
    }
    Ok(tables)
}

/// Whether connections have what is asked for.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaValidation)]
pub struct ValidationView {
    /// `success` or `failure`.
    status: &'static str,
    message: &'static str,
    errors: Vec<MissingView>,
}

/// What a connection lacks.
#[derive(Serialize, ToSchema)]
#[schema(as = SchemaError)]
struct MissingView {
    /// Its path, e.g. `mappedFields.shop.orders.code`.
    field: String,
    message: String,
}

impl ValidationView {
    pub fn success() -> Self {
        let message = "All fields validated successfully";
        Self { status: "success", message, errors: Vec::new() }
    }

    fn failure(errors: Vec<MissingView>) -> Self {
        let message = "Some data sources, tables or fields are not there";
        Self { status: "failure", message, errors }
    }

    pub fn of_fields(errors: Vec<FieldError>) -> Self {
        let missing = |error: FieldError| {
            let field = error.field.trim_start_matches("dataRequest.").to_owned();
            MissingView { field, message: error.message }
        };
        Self::failure(errors.into_iter().map(missing).collect())
    }

    pub fn of_connections(faults: &[(String, Fault)]) -> Self {
        let missing = |(name, fault): &(String, Fault)| MissingView {
            field: format!("mappedFields.{name}"),
            message: fault.to_string(),
        };
        Self::failure(faults.iter().map(missing).collect())
    }
}
