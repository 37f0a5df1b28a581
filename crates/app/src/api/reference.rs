//! The reference: the `OpenAPI` document, a page made from it, and a page of all codes made from
//! the enums themselves, so that neither can drift.

use std::sync::Arc;

use axum::{
    Extension,
    http::header,
    response::{IntoResponse, Response},
};
use minijinja::{Value, context};
use outport_domain::{failure::FailureCode, json::FieldCode, locale::Locale};
use serde_json::Value as Json;

use super::{
    pages::Pages,
    problem::{Outcome, ProblemCode},
};

/// The document, ready to be sent, and what the page shows of it.
pub struct Reference {
    document: String,
    operations: Value,
    schemas: Value,
}

impl Reference {
    /// Prepares what never changes while the process runs.
    pub fn new(document: &utoipa::openapi::OpenApi) -> Self {
        let json = serde_json::to_value(document).unwrap_or_default();
        Self {
            document: json.to_string(),
            operations: Value::from(operations(&json)),
            schemas: Value::from(schemas(&json)),
        }
    }
}

/// The API's description for machines.
#[utoipa::path(get, path = "/openapi.json", tag = "operation",
    responses((status = 200, description = "OpenAPI 3.1", content_type = "application/json")))]
pub async fn document(Extension(reference): Extension<Arc<Reference>>) -> Response {
    let media_type = [(header::CONTENT_TYPE, "application/json")];
    (media_type, reference.document.clone()).into_response()
}

/// The reference as a page.
#[utoipa::path(get, path = "/docs", tag = "operation",
    responses((status = 200, description = "A page", content_type = "text/html")))]
pub async fn page(
    Extension(reference): Extension<Arc<Reference>>,
    Extension(pages): Extension<Arc<Pages>>,
) -> Response {
    let operations = reference.operations.clone();
    let values = context! { operations, schemas => reference.schemas.clone() };
    pages.answer(Outcome::Ok.status(), "reference.html", Locale::En, "API reference", values)
}

/// Every problem, field and failure code with its meaning.
#[utoipa::path(get, path = "/docs/errors", tag = "operation",
    responses((status = 200, description = "A page", content_type = "text/html")))]
pub async fn errors(Extension(pages): Extension<Arc<Pages>>) -> Response {
    let problems: Vec<Value> = ProblemCode::ALL
        .into_iter()
        .map(|code| {
            context! {
                code => code.name(), status => code.status().as_u16(),
                title => code.title(), meaning => code.meaning(),
            }
        })
        .collect();
    let fields: Vec<Value> = FieldCode::ALL
        .into_iter()
        .map(|code| context! { code => code.name(), meaning => code.meaning() })
        .collect();
    let failures: Vec<Value> = FailureCode::ALL
        .into_iter()
        .map(|code| context! { code => code.name(), meaning => code.meaning() })
        .collect();
    let values = context! { problems, fields, failures };
    pages.answer(Outcome::Ok.status(), "errors.html", Locale::En, "Errors", values)
}

fn operations(document: &Json) -> Vec<Value> {
    let mut found = Vec::new();
    for (path, item) in members(&document["paths"]) {
        for (method, operation) in members(item) {
            let method = method.to_uppercase();
            let id = format!("{method} {path}").replace([' ', '/', '{', '}'], "-");
            let scopes: Vec<Value> = list(&operation["security"])
                .iter()
                .flat_map(|scheme| list(&scheme["bearer"]))
                .map(text)
                .collect();
            let parameters: Vec<Value> = list(&operation["parameters"])
                .iter()
                .map(|one| row([text(&one["name"]), text(&one["in"]), text(&one["description"])]))
                .collect();
            let answers: Vec<Value> = members(&operation["responses"])
                .map(|(status, answer)| {
                    row([
                        Value::from(status.as_str()),
                        text(&answer["description"]),
                        Value::from(body_name(answer)),
                    ])
                })
                .collect();
            found.push(context! {
                id, method, path => path.as_str(), scopes, parameters, answers,
                summary => text(&operation["summary"]),
                description => text(&operation["description"]),
                body => body_name(&operation["requestBody"]),
            });
        }
    }
    found
}

fn schemas(document: &Json) -> Vec<Value> {
    members(&document["components"]["schemas"])
        .map(|(name, schema)| {
            let parts: Vec<&Json> = std::iter::once(schema).chain(list(&schema["allOf"])).collect();
            let rows: Vec<Value> = parts
                .iter()
                .flat_map(|part| members(&part["properties"]))
                .map(|(member, schema)| {
                    row([
                        Value::from(member.as_str()),
                        Value::from(type_name(schema)),
                        text(&schema["description"]),
                    ])
                })
                .collect();
            let description = text(&schema["description"]);
            context! { name => name.as_str(), description, members => rows }
        })
        .collect()
}

/// The name of the schema of a JSON body; empty when it has none.
fn body_name(part: &Json) -> String {
    let schema = &part["content"]["application/json"]["schema"];
    schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned()
}

fn type_name(schema: &Json) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        return path.rsplit('/').next().unwrap_or_default().to_owned();
    }
    match &schema["type"] {
        Json::String(name) if name == "array" => {
            format!("array of {}", type_name(&schema["items"]))
        }
        Json::String(name) => name.clone(),
        Json::Array(names) => {
            names.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" or ")
        }
        _ => list(&schema["oneOf"]).iter().map(type_name).collect::<Vec<_>>().join(" or "),
    }
}

fn members(object: &Json) -> impl Iterator<Item = (&String, &Json)> {
    object.as_object().into_iter().flatten()
}

fn list(array: &Json) -> &[Json] {
    array.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Json) -> Value {
    Value::from(value.as_str().unwrap_or_default())
}

fn row(cells: [Value; 3]) -> Value {
    Value::from(Vec::from(cells))
}
