//! After the state was restored from a backup.

use std::process::Command;

use crate::harness::{
    World,
    process::{Program, output},
};

/// A file cannot be told from its copy: whoever restores one says so.
#[tokio::test]
async fn a_new_epoch_is_begun_by_command_and_stays() {
    let world = World::sqlite();
    let epoch = "SELECT epoch FROM epochs ORDER BY created_at DESC LIMIT 1";
    let command = |arguments: &[&str]| {
        let mut command = Command::new(Program::Outport.path());
        command.args(arguments).current_dir(world.path("")).env_clear().envs(&world.env);
        command
    };
    output(command(&["migrate"])).await;
    let before = world.state.value(epoch).await;
    let said = output(command(&["epoch", "new"])).await;
    let after = world.state.value(epoch).await;
    assert_eq!(said.trim(), after);
    assert_ne!(after, before);
    drop(world.all_in_one().await);
    assert_eq!(world.state.value(epoch).await, after, "a start begins none");
}
