//! The handlers that this process has.

use std::sync::Arc;

use outport_store::deliveries::HandlerRow;

use crate::{batch::BatchHandler, handler::Handler};

/// The handlers that this process has, in the order of their registration.
#[derive(Clone, Default)]
pub struct Registry {
    handlers: Vec<Registered>,
}

/// A handler of either form.
#[derive(Clone)]
pub(crate) enum Registered {
    /// One delivery at a time.
    One(Arc<dyn Handler>),
    /// Windows of them.
    Batch(Arc<dyn BatchHandler>),
}

impl Registered {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::One(handler) => handler.name(),
            Self::Batch(handler) => handler.name(),
        }
    }

    fn event_types(&self) -> &'static [&'static str] {
        match self {
            Self::One(handler) => handler.event_types(),
            Self::Batch(handler) => handler.event_types(),
        }
    }
}

/// Two handlers of one name: each would do the other's duty. The process must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two handlers are called '{name}'; a handler's name must be its own")]
pub struct DuplicateHandler {
    /// The name.
    pub name: &'static str,
}

impl Registry {
    /// No handlers yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a handler.
    pub fn register(&mut self, handler: impl Handler + 'static) -> Result<(), DuplicateHandler> {
        self.add(Registered::One(Arc::new(handler)))
    }

    /// Adds a handler of windows.
    pub fn register_batch(
        &mut self,
        handler: impl BatchHandler + 'static,
    ) -> Result<(), DuplicateHandler> {
        self.add(Registered::Batch(Arc::new(handler)))
    }

    fn add(&mut self, handler: Registered) -> Result<(), DuplicateHandler> {
        let name = handler.name();
        if self.handlers.iter().any(|registered| registered.name() == name) {
            return Err(DuplicateHandler { name });
        }
        self.handlers.push(handler);
        Ok(())
    }

    /// The handlers as data, for [`outport_store::deliveries::register`]: every role writes them
    /// before it serves, so that commits know whom to tell.
    pub fn rows(&self) -> Vec<HandlerRow> {
        self.handlers
            .iter()
            .map(|handler| HandlerRow {
                name: handler.name().to_owned(),
                event_types: handler
                    .event_types()
                    .iter()
                    .map(|event_type| (*event_type).to_owned())
                    .collect(),
            })
            .collect()
    }

    pub(crate) fn into_handlers(self) -> Vec<Registered> {
        self.handlers
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::*;
    use crate::handler::{Delivery, Done, HandlerError};

    struct Named(&'static str);

    #[async_trait]
    impl Handler for Named {
        fn name(&self) -> &'static str {
            self.0
        }

        fn event_types(&self) -> &'static [&'static str] {
            &["export.completed", "export.failed"]
        }

        async fn handle(&self, _delivery: &Delivery<'_>) -> Result<Done, HandlerError> {
            Ok(Done::Now)
        }
    }

    #[test]
    fn the_same_name_twice_is_refused_by_name() {
        let mut registry = Registry::new();
        assert_eq!(registry.register(Named("ring-bell")), Ok(()));
        assert_eq!(registry.register(Named("blow-horn")), Ok(()));
        let refusal = registry.register(Named("ring-bell")).expect_err("a second of that name");
        assert_eq!(refusal, DuplicateHandler { name: "ring-bell" });
        assert!(refusal.to_string().contains("'ring-bell'"));
    }

    #[test]
    fn rows_say_who_wants_what() {
        let mut registry = Registry::new();
        registry.register(Named("ring-bell")).expect("the first of its name");
        let expected = HandlerRow {
            name: "ring-bell".to_owned(),
            event_types: vec!["export.completed".to_owned(), "export.failed".to_owned()],
        };
        assert_eq!(registry.rows(), [expected]);
    }
}
