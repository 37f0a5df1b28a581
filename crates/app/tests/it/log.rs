//! What is logged, kept.

use std::sync::{Arc, Mutex};

/// A log in memory. Clones are the same one.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// An empty one, and what makes writers to it.
    pub fn new() -> (Self, impl Fn() -> Self + Send + Sync + 'static) {
        let log = Self::default();
        let writer = log.clone();
        (log, move || writer.clone())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no poison").clone()).expect("text")
    }
}

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no poison").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
