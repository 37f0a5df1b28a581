//! `outport`: the command line, the demo, and all roles in one process.

use std::process::ExitCode;

fn main() -> ExitCode {
    outport::command::main(outport::command::Program::Outport)
}
