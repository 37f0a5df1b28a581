//! `outport-api`: HTTP alone, the same as `outport api`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outport::command::main(outport::command::Program::Api)
}
