//! What reading an SQLite file costs those who write to it.

use std::{
    io,
    sync::{Arc, Mutex},
};

use outport_domain::column::ColumnType::Integer;

use crate::world::{World, read, selection, within};

/// What is logged on the test's own thread, kept.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no poison").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_file_that_makes_writers_wait_is_warned_of_once() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    within(World::sqlite(), async |world| {
        world.run("CREATE TABLE t (id integer); INSERT INTO t VALUES (1)").await;
        let wanted = selection(world.table("t"), &[("id", Integer)]);
        for mode in ["DELETE", "WAL"] {
            world.run(&format!("PRAGMA journal_mode = {mode}")).await;
            let source = world.source();
            for _ in 0..2 {
                assert_eq!(read(&source, &wanted).await.expect("rows").len(), 1);
            }
            let text = String::from_utf8(log.0.lock().expect("no poison").clone()).expect("text");
            assert_eq!(text.matches("is not in WAL mode").count(), 1, "{mode}: {text}");
            assert!(text.contains("source.db"), "{text}");
        }
    })
    .await;
}
