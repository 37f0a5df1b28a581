//! Why an export failed and what its requester can do, in the requester's language.

use outport_domain::{failure::FailureCode, locale::Locale};

/// One or two sentences for the requester, who is not the operator.
#[expect(clippy::too_many_lines, reason = "one total match, a sentence for each code and language")]
pub const fn sentence(code: FailureCode, locale: Locale) -> &'static str {
    use FailureCode as Code;
    use Locale::{En, Es, PtBr};
    match (code, locale) {
        (Code::SourceUnreachable, En) => {
            "The database with your data could not be reached. Please try again later."
        }
        (Code::SourceUnreachable, PtBr) => {
            "Não foi possível acessar o banco de dados com os seus dados. Tente novamente mais tarde."
        }
        (Code::SourceUnreachable, Es) => {
            "No se pudo acceder a la base de datos con sus datos. Inténtelo de nuevo más tarde."
        }
        (Code::SourceQueryFailed, En) => {
            "The database refused to answer this request. Please ask your administrator."
        }
        (Code::SourceQueryFailed, PtBr) => {
            "O banco de dados recusou esta solicitação. Fale com o administrador."
        }
        (Code::SourceQueryFailed, Es) => {
            "La base de datos rechazó esta solicitud. Consulte a su administrador."
        }
        (Code::SourceStalled, En) => {
            "The database stopped sending data for too long. Please try again later."
        }
        (Code::SourceStalled, PtBr) => {
            "O banco de dados ficou tempo demais sem enviar dados. Tente novamente mais tarde."
        }
        (Code::SourceStalled, Es) => {
            "La base de datos dejó de enviar datos durante demasiado tiempo. Inténtelo de nuevo más tarde."
        }
        (Code::SourceTruncated, En) => {
            "The connection to the database broke before all rows were read. No partial file was kept; please try again."
        }
        (Code::SourceTruncated, PtBr) => {
            "A conexão com o banco de dados caiu antes que todas as linhas fossem lidas. Nenhum arquivo parcial foi guardado; tente novamente."
        }
        (Code::SourceTruncated, Es) => {
            "La conexión con la base de datos se cortó antes de leer todas las filas. No se guardó ningún archivo parcial; inténtelo de nuevo."
        }
        (Code::SchemaMismatch, En) => {
            "The data's structure has changed since this export was set up. Please ask your administrator."
        }
        (Code::SchemaMismatch, PtBr) => {
            "A estrutura dos dados mudou desde que esta exportação foi configurada. Fale com o administrador."
        }
        (Code::SchemaMismatch, Es) => {
            "La estructura de los datos cambió desde que se configuró esta exportación. Consulte a su administrador."
        }
        (Code::ValueNotEncodable, En) => {
            "A value cannot be written in the requested format. Leave its column out or choose another format."
        }
        (Code::ValueNotEncodable, PtBr) => {
            "Um valor não pode ser gravado no formato solicitado. Retire a coluna ou escolha outro formato."
        }
        (Code::ValueNotEncodable, Es) => {
            "Un valor no se puede escribir en el formato solicitado. Quite la columna o elija otro formato."
        }
        (Code::LimitExceeded, En) => {
            "The export would be larger than allowed. Please narrow the filters."
        }
        (Code::LimitExceeded, PtBr) => {
            "A exportação ficaria maior do que o permitido. Restrinja os filtros."
        }
        (Code::LimitExceeded, Es) => {
            "La exportación sería más grande de lo permitido. Restrinja los filtros."
        }
        (Code::StoreWriteFailed | Code::StoreMismatch, En) => {
            "The file could not be stored completely. Please try again later."
        }
        (Code::StoreWriteFailed | Code::StoreMismatch, PtBr) => {
            "Não foi possível armazenar o arquivo por completo. Tente novamente mais tarde."
        }
        (Code::StoreWriteFailed | Code::StoreMismatch, Es) => {
            "No se pudo almacenar el archivo por completo. Inténtelo de nuevo más tarde."
        }
        (Code::WorkerLost, En) => {
            "The export was interrupted several times. Please try again later."
        }
        (Code::WorkerLost, PtBr) => {
            "A exportação foi interrompida várias vezes. Tente novamente mais tarde."
        }
        (Code::WorkerLost, Es) => {
            "La exportación se interrumpió varias veces. Inténtelo de nuevo más tarde."
        }
        (Code::SnapshotTooOld, En) => {
            "Reading the data took longer than allowed. Please narrow the filters."
        }
        (Code::SnapshotTooOld, PtBr) => {
            "A leitura dos dados demorou mais do que o permitido. Restrinja os filtros."
        }
        (Code::SnapshotTooOld, Es) => {
            "La lectura de los datos tardó más de lo permitido. Restrinja los filtros."
        }
        (Code::Canceled, En) => "The export was canceled by request.",
        (Code::Canceled, PtBr) => "A exportação foi cancelada a pedido.",
        (Code::Canceled, Es) => "La exportación se canceló a petición.",
        (Code::Internal, En) => {
            "An unexpected error occurred. Please try again, and tell your administrator if it persists."
        }
        (Code::Internal, PtBr) => {
            "Ocorreu um erro inesperado. Tente novamente e, se persistir, avise o administrador."
        }
        (Code::Internal, Es) => {
            "Ocurrió un error inesperado. Inténtelo de nuevo y, si persiste, avise a su administrador."
        }
    }
}
