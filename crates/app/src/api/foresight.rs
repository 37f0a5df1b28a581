//! Refusing an export that is bound to fail, before it is a job.

use outport_domain::{
    caller::Caller,
    json::{FieldCode, FieldError},
    spec::ExportSpec,
};
use outport_store::submit::{IdempotencyKey, is_known};

use super::{ApiState, problem::Problem};

/// Passes what may come to a file.
pub async fn pass(
    state: &ApiState,
    caller: &Caller,
    spec: &ExportSpec,
    key: Option<&IdempotencyKey>,
) -> Result<(), Problem> {
    let Some(source) = state.sources.get(&spec.resource.connection) else { return Ok(()) };
    let Some(most) = state.foresight.overflow(&**source, spec).await else { return Ok(()) };
    if let Some(key) = key
        && is_known(&state.store, caller, &key.key).await?
    {
        // It made a job when there were fewer rows, and stands for that job.
        return Ok(());
    }
    let message = format!(
        "holds at most {most} rows in a file, and these are more; narrow the filters, split the \
         export by maxRowsPerFile, or ask for another format"
    );
    let (field, code) = ("format".to_owned(), FieldCode::LimitExceeded);
    Err(Problem::invalid_request(vec![FieldError { field, code, message }]))
}
