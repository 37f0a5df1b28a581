//! `outport-worker`: work alone, the same as `outport worker`.

use std::process::ExitCode;

fn main() -> ExitCode {
    outport::command::main(outport::command::Program::Worker)
}
