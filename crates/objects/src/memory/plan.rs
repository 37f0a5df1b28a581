//! What is planned to go wrong, and how it is looked up.

use std::sync::Arc;

use tokio::sync::watch;

use crate::{ObjectError, parts::refused};

/// A step at which something can be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the steps are the methods of the port")]
pub enum Step {
    Put,
    Begin,
    /// Uploading the part of this number, of any upload.
    Part(u32),
    Finish,
    Abort,
    Head,
    Get,
    Delete,
    Check,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens and the store does not answer.
    Unreachable,
    /// It happens and the answer is lost.
    AnswerLost,
    /// The store refuses with this code.
    Refused(&'static str),
    /// There is no room.
    Full,
    /// The step succeeds and reports one byte more than there is (put, finish, head).
    WrongSize,
    /// The download starts and breaks after this many bytes (get).
    BreakAfter(usize),
}

/// All that is planned, in the order of planning.
#[derive(Default)]
pub(super) struct Plans(Vec<Plan>);

struct Plan {
    step: Step,
    what: Planned,
    always: bool,
}

#[derive(Clone)]
pub(super) enum Planned {
    Fault(Fault),
    Hang(Arc<Gate>),
}

impl Plans {
    pub(super) fn add(&mut self, step: Step, what: Planned, always: bool) {
        self.0.push(Plan { step, what, always });
    }

    /// What happens at this step now; standing plans stay.
    pub(super) fn take(&mut self, step: Step) -> Option<Planned> {
        let index = self.0.iter().position(|plan| plan.step == step)?;
        if self.0[index].always {
            Some(self.0[index].what.clone())
        } else {
            Some(self.0.remove(index).what)
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Where a step hangs.
#[derive(Default)]
pub(super) struct Gate {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// The step's side: says that it is here and waits.
    pub(super) async fn pass(&self) {
        self.reached.send_replace(true);
        wait_for_true(&self.open).await;
    }
}

/// The test's end of a step that hangs.
pub struct Hang(pub(super) Arc<Gate>);

impl Hang {
    /// Waits until the step hangs.
    pub async fn reached(&self) {
        wait_for_true(&self.0.reached).await;
    }

    /// Lets the step go on. Dropping a `Hang` does not.
    pub fn release(self) {
        self.0.open.send_replace(true);
    }
}

impl Fault {
    /// The error of a fault that strikes before anything happens.
    pub(super) fn before(self) -> Option<ObjectError> {
        match self {
            Self::Unreachable => Some(unreachable()),
            Self::Refused(code) => Some(refused(code, "planned")),
            Self::Full => Some(ObjectError::Full("planned".into())),
            Self::AnswerLost | Self::WrongSize | Self::BreakAfter(_) => None,
        }
    }
}

async fn wait_for_true(flag: &watch::Sender<bool>) {
    let waited = flag.subscribe().wait_for(|is_true| *is_true).await.is_ok();
    debug_assert!(waited, "the sender is borrowed, so it lives");
}

pub(super) fn unreachable() -> ObjectError {
    ObjectError::Unreachable("planned".into())
}
