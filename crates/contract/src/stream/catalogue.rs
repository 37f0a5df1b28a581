//! Every type of event: what it is about, in which channels it is numbered, and how urgent it is.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ChannelKind;

/// What a type belongs to; it says which members `data` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words are the catalogue's own")]
pub enum Family {
    Job,
    Queue,
    Turn,
    Retry,
    Stage,
    Graph,
    Package,
    Inventory,
    Module,
    Closure,
    Release,
    Application,
    Domain,
    Notice,
    Plan,
    Credit,
    Usage,
    Log,
    /// Told to one subscriber alone; never appended.
    Control,
}

/// In which stages a type occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageRule {
    /// It has none.
    None,
    /// In any.
    Any,
    /// In this one alone.
    Only(&'static str),
}

/// Whether a notification may wait for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryClass {
    /// It does not wait.
    Immediate,
    /// It may wait for a short interval, and travel with others.
    Batched,
}

/// A type of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamEventType {
    /// Its name, e.g. `stage.progress`; never translated.
    pub name: &'static str,
    /// What it belongs to.
    pub family: Family,
    /// In which stages it occurs.
    pub stages: StageRule,
    /// Where it is numbered, if its scope has such a member. Empty for those told to one
    /// subscriber alone.
    pub channels: &'static [ChannelKind],
    /// How urgent it is.
    pub class: DeliveryClass,
}

/// The states of `job.*`, as `data.state` names them; each is its type's own.
const STATES: [&str; 7] =
    ["queued", "running", "waiting_turn", "succeeded", "failed", "cancelled", "limit_exceeded"];

/// The stages of a run.
const STAGES: [&str; 5] = ["resolve", "prepare", "analyze", "generate", "validate"];

const JOB: &[ChannelKind] = &[ChannelKind::Job];
const APPLICATION: &[ChannelKind] = &[ChannelKind::Application];
const ORGANIZATION: &[ChannelKind] = &[ChannelKind::Organization];
const JOB_APPLICATION: &[ChannelKind] = &[ChannelKind::Job, ChannelKind::Application];
const APPLICATION_ORGANIZATION: &[ChannelKind] =
    &[ChannelKind::Application, ChannelKind::Organization];
const JOB_ORGANIZATION: &[ChannelKind] = &[ChannelKind::Job, ChannelKind::Organization];

macro_rules! types {
    ($($name:literal $family:ident $stages:expr, $channels:expr, $class:ident;)*) => {
        &[$(StreamEventType {
            name: $name,
            family: Family::$family,
            stages: $stages,
            channels: $channels,
            class: DeliveryClass::$class,
        }),*]
    };
}

/// All of them.
pub const CATALOGUE: &[StreamEventType] = types! {
    "job.queued" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.running" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.waiting_turn" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.succeeded" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.failed" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.cancelled" Job StageRule::None, JOB_APPLICATION, Immediate;
    "job.limit_exceeded" Job StageRule::None, JOB_APPLICATION, Immediate;
    "queue.position" Queue StageRule::None, JOB, Batched;
    "turn.started" Turn StageRule::None, JOB, Immediate;
    "turn.ended" Turn StageRule::None, JOB, Immediate;
    "retry.scheduled" Retry StageRule::None, JOB, Immediate;
    "stage.started" Stage StageRule::Any, JOB, Immediate;
    "stage.succeeded" Stage StageRule::Any, JOB, Immediate;
    "stage.failed" Stage StageRule::Any, JOB, Immediate;
    "stage.progress" Stage StageRule::Any, JOB, Batched;
    "graph.pinned" Graph StageRule::Only("resolve"), JOB_APPLICATION, Immediate;
    "graph.exception" Graph StageRule::Only("resolve"), JOB, Immediate;
    "package.fetched" Package StageRule::Only("prepare"), JOB, Batched;
    "package.reused" Package StageRule::Only("prepare"), JOB, Batched;
    "package.failed" Package StageRule::Only("prepare"), JOB, Immediate;
    "inventory.persisted" Inventory StageRule::Only("analyze"), JOB_APPLICATION, Immediate;
    "inventory.unknown" Inventory StageRule::Only("analyze"), JOB, Immediate;
    "module.queued" Module StageRule::Only("generate"), JOB, Batched;
    "module.started" Module StageRule::Only("generate"), JOB, Batched;
    "module.generated" Module StageRule::Only("generate"), JOB, Batched;
    "cache.hit" Module StageRule::Only("generate"), JOB, Batched;
    "module.failed" Module StageRule::Only("generate"), JOB, Immediate;
    "module.limit_exceeded" Module StageRule::Only("generate"), JOB, Immediate;
    "diagnostics.reported" Module StageRule::Only("generate"), JOB, Immediate;
    "closure.validated" Closure StageRule::Only("validate"), JOB_APPLICATION, Immediate;
    "closure.incomplete" Closure StageRule::Only("validate"), JOB_APPLICATION, Immediate;
    "release.ready" Release StageRule::None, JOB_APPLICATION, Immediate;
    "release.failed" Release StageRule::None, JOB_APPLICATION, Immediate;
    "release.candidate" Release StageRule::None, APPLICATION, Immediate;
    "release.activated" Release StageRule::None, APPLICATION, Immediate;
    "release.retired" Release StageRule::None, APPLICATION, Immediate;
    "application.changed" Application StageRule::None, APPLICATION_ORGANIZATION, Immediate;
    "domain.changed" Domain StageRule::None, APPLICATION, Immediate;
    "notice.update" Notice StageRule::None, APPLICATION, Immediate;
    "plan.changed" Plan StageRule::None, ORGANIZATION, Immediate;
    "credit.granted" Credit StageRule::None, ORGANIZATION, Immediate;
    "credit.reserved" Credit StageRule::None, ORGANIZATION, Batched;
    "credit.settled" Credit StageRule::None, ORGANIZATION, Batched;
    "credit.released" Credit StageRule::None, ORGANIZATION, Batched;
    "usage.recorded" Usage StageRule::None, JOB_ORGANIZATION, Batched;
    "log.batch" Log StageRule::None, JOB, Batched;
    "access.revoked" Control StageRule::None, &[], Immediate;
    "resync.required" Control StageRule::None, &[], Immediate;
};

/// The type with this name, if the catalogue has one.
pub fn find(name: &str) -> Option<&'static StreamEventType> {
    CATALOGUE.iter().find(|event_type| event_type.name == name)
}

/// A member of `data` that its type needs is missing or wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data.{member}: {rule}")]
pub struct InvalidData {
    /// The member.
    pub member: &'static str,
    /// What it must be.
    pub rule: String,
}

/// The members that some family needs. What is no object has none of them.
#[derive(Default, Deserialize)]
struct Members {
    state: Option<serde_json::Value>,
    stage: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "present")]
    done: Option<serde_json::Value>,
    #[serde(default, deserialize_with = "present")]
    total: Option<serde_json::Value>,
    module: Option<serde_json::Value>,
    lines: Option<serde_json::Value>,
}

/// Tells a member that is null from one that is absent.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<serde_json::Value>, D::Error> {
    serde_json::Value::deserialize(deserializer).map(Some)
}

impl StreamEventType {
    /// Members of `data` that the family defines and that are no secrets, though their names say
    /// so: the `key` of a module's content.
    pub fn plain_members(&self) -> &'static [&'static str] {
        match self.family {
            Family::Module | Family::Retry => &["key"],
            _ => &[],
        }
    }

    /// Whether `data` has what the family asks for: `job.*` its own `state`; `stage.*` a `stage`,
    /// `done` and `total` (numbers, or null where unknown); modules and `retry.scheduled` a
    /// `module`; `log.batch` sanitised `lines`. Other members are free.
    pub fn check(&self, data: &RawValue) -> Result<(), InvalidData> {
        let invalid = |member, rule: &str| Err(InvalidData { member, rule: rule.to_owned() });
        if !data.get().trim_start().starts_with('{') {
            return invalid("*", "must be an object");
        }
        let Ok(members) = serde_json::from_str::<Members>(data.get()) else {
            return invalid("*", "must be an object whose members are there once each");
        };
        match self.family {
            Family::Job => {
                let own = self.name.strip_prefix("job.").filter(|state| STATES.contains(state));
                if members.state.as_ref().and_then(|state| state.as_str()) != own {
                    return invalid("state", &format!("must be {}", own.unwrap_or_default()));
                }
            }
            Family::Stage => {
                let stage = members.stage.as_ref().and_then(|stage| stage.as_str());
                if !stage.is_some_and(|stage| STAGES.contains(&stage)) {
                    return invalid("stage", &format!("must be one of {}", STAGES.join(", ")));
                }
                for (member, value) in [("done", members.done), ("total", members.total)] {
                    if !value.is_some_and(|value| value.is_null() || value.is_u64()) {
                        return invalid(member, "must be a whole number, or null where unknown");
                    }
                }
            }
            Family::Module | Family::Retry => {
                let module = members.module.as_ref().and_then(|module| module.as_str());
                if module.is_none_or(str::is_empty) {
                    return invalid("module", "must be a text");
                }
            }
            Family::Log if !members.lines.is_some_and(|lines| lines_are_sound(&lines)) => {
                let rule = "must be an array of {time, level, stage, message}";
                return invalid("lines", rule);
            }
            _ => {}
        }
        Ok(())
    }
}

fn lines_are_sound(lines: &serde_json::Value) -> bool {
    let text = |line: &serde_json::Value, member: &str| line[member].is_string();
    lines.as_array().is_some_and(|lines| {
        lines.iter().all(|line| {
            line.as_object().is_some_and(|members| members.len() == 4)
                && ["time", "level", "message"].iter().all(|member| text(line, member))
                && (line["stage"].is_null() || text(line, "stage"))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published table.
    const TABLE: &str = include_str!("../../../../tests/golden/event-catalogue.csv");

    #[test]
    fn the_catalogue_is_the_published_table() {
        let channels = |event_type: &StreamEventType| match event_type.family {
            Family::Control => "all".to_owned(),
            _ => event_type.channels.iter().map(|kind| kind.name()).collect::<Vec<_>>().join("|"),
        };
        let rows = CATALOGUE.iter().map(|event_type| {
            let family = format!("{:?}", event_type.family).to_lowercase();
            let stages = match event_type.stages {
                StageRule::None => "",
                StageRule::Any => "any",
                StageRule::Only(stage) => stage,
            };
            let class = format!("{:?}", event_type.class).to_lowercase();
            format!("{},{family},{stages},{},{class}", event_type.name, channels(event_type))
        });
        let published: Vec<_> = TABLE.lines().skip(1).map(str::to_owned).collect();
        assert_eq!(rows.collect::<Vec<_>>(), published);
    }

    #[test]
    fn data_has_what_its_family_asks_for() {
        let check = |name: &str, data: &str| {
            let data = RawValue::from_string(data.to_owned()).expect("JSON");
            find(name).expect("a type").check(&data).map_err(|error| error.member)
        };
        for (name, data) in [
            ("job.failed", r#"{"state":"failed","code":"X"}"#),
            ("stage.progress", r#"{"stage":"generate","done":41,"total":null}"#),
            ("cache.hit", r#"{"module":"export","key":"a"}"#),
            ("retry.scheduled", r#"{"module":"export","attempt":2}"#),
            ("log.batch", r#"{"lines":[{"time":"t","level":"info","stage":null,"message":"m"}]}"#),
            ("turn.started", "{}"),
        ] {
            assert_eq!(check(name, data), Ok(()), "{name} {data}");
        }
        for (name, data, member) in [
            ("job.failed", "[]", "*"),
            ("job.failed", r#"{"state":"failed","state":"failed"}"#, "*"),
            ("job.failed", "{}", "state"),
            ("job.failed", r#"{"state":"queued"}"#, "state"),
            ("stage.started", r#"{"stage":"lunch","done":null,"total":null}"#, "stage"),
            ("stage.started", r#"{"stage":"resolve","total":null}"#, "done"),
            ("stage.progress", r#"{"stage":"generate","done":1.5,"total":2}"#, "done"),
            ("stage.progress", r#"{"stage":"generate","done":1,"total":-2}"#, "total"),
            ("module.failed", r#"{"module":""}"#, "module"),
            ("log.batch", r#"{"lines":[{"time":"t","level":"info","message":"m"}]}"#, "lines"),
            ("log.batch", r#"{"lines":{}}"#, "lines"),
        ] {
            assert_eq!(check(name, data), Err(member), "{name} {data}");
        }
    }
}
