//! The second handler of `HANDLERS.md`: this file, and one line to register it.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use outport_relay::{Delivery, Done, Handler, HandlerError};

/// Rings a bell for every export that has ended with or without a file.
#[derive(Clone, Default)]
pub struct RingBell {
    bell: Arc<Mutex<Vec<String>>>,
}

#[async_trait]
impl Handler for RingBell {
    fn name(&self) -> &'static str {
        "ring-bell"
    }

    fn event_types(&self) -> &'static [&'static str] {
        &["export.completed", "export.failed"]
    }

    async fn handle(&self, delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
        let export = delivery.export_event()?.data;
        delivery
            .once("tower", async {
                let mut bell = self
                    .bell
                    .lock()
                    .map_err(|_| HandlerError::retry("the bell is being repaired"))?;
                bell.push(format!("{} {}", export.export_job_id, export.status));
                Ok("rung".to_owned())
            })
            .await
    }
}

impl RingBell {
    /// What it has been rung for.
    pub fn rung(&self) -> Vec<String> {
        self.bell.lock().expect("nobody panics while ringing").clone()
    }
}

#[test]
fn the_page_shows_this_very_file() {
    let page = include_str!("../../HANDLERS.md");
    let file = include_str!("ring_bell.rs");
    let from = file.find("use std::sync").expect("the imports");
    let to = file.find("\nimpl RingBell").expect("the test's own part");
    assert!(page.contains(&file[from..to]), "HANDLERS.md no longer shows tests/it/ring_bell.rs");
}
