//! What an event is.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt as _;
use reqwest::{Method, header::ACCEPT_LANGUAGE};
use serde_json::{Value, json};

use super::{
    Case, Checked, Flaw,
    ear::{Ear, Said},
    ensure,
    stage::{Stage, status_of},
};

pub(super) const CASES: &[Case] = &[
    Case::new("S1", "an event has its six members and no other", |s| members(s).boxed()),
    Case::new("S2 D1", "one change has one id, replayed and live, in every channel", |s| {
        identity(s).boxed()
    }),
    Case::new("S3", "the organization is always told, the others when they apply", |s| {
        scopes(s).boxed()
    }),
    Case::new("S5", "a type outside the catalogue is refused and leaves nothing", |s| {
        types(s).boxed()
    }),
    Case::new("S6", "time is when it was committed", |s| times(s).boxed()),
    Case::new("S7", "data has what its family asks for", |s| families(s).boxed()),
    Case::new("S8", "credentials do not come through", |s| secrets(s).boxed()),
    Case::new("S28", "identifiers are never translated", |s| languages(s).boxed()),
    Case::new("S29", "lines of a log have four members and are sanitised", |s| lines(s).boxed()),
];

fn names(object: &Value) -> BTreeSet<&str> {
    object.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

async fn members(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let data = json!({"note": "é", "number": 12_345_678_901_234_567_u64});
    let appended = stage.append(&place, "release.candidate", data.clone()).await?;
    let event = stage.event(&place.channel, 1).await?;
    let expected = BTreeSet::from(["data", "id", "sequence", "stream", "time", "type"]);
    ensure(names(&event) == expected, || format!("it has {:?}", names(&event)))?;
    ensure(event["id"] == appended.id, || format!("{} is not {}", event["id"], appended.id))?;
    ensure(event["sequence"] == 1, || format!("the first has {}", event["sequence"]))?;
    ensure(event["type"] == "release.candidate", || format!("it is a {}", event["type"]))?;
    ensure(event["data"] == data, || format!("{} is not {data}", event["data"]))
}

async fn identity(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let organization = stage.shared().channel;
    let mut ear = Ear::on(stage.client(), &place.channel, None).await?;
    let appended = stage.append(&place, "application.changed", json!({})).await?;
    ensure(appended.id.starts_with("evt_"), || format!("the id is {}", appended.id))?;
    for channel in [&place.channel, &organization] {
        let event = stage.event(channel, appended.sequence(channel)?).await?;
        ensure(event["id"] == appended.id, || format!("{channel} has it as {}", event["id"]))?;
    }
    let heard = ear.up_to(&place.channel, 1).await?;
    let ids: Vec<_> = heard.iter().flat_map(Said::events).map(|event| &event["id"]).collect();
    ensure(ids == [&appended.id], || format!("told as {ids:?}, not {}", appended.id))
}

async fn scopes(stage: &Stage) -> Checked {
    let (place, shared) = (stage.fresh(), stage.shared());
    let appended = stage.append(&shared, "plan.changed", json!({})).await?;
    let event = stage.event(&shared.channel, appended.sequence(&shared.channel)?).await?;
    let organization = json!({"organization": stage.organization});
    ensure(event["stream"] == organization, || format!("of {}", event["stream"]))?;
    stage.append(&place, "release.candidate", json!({})).await?;
    let event = stage.event(&place.channel, 1).await?;
    let expected = json!(place.scope);
    ensure(event["stream"] == expected, || format!("of {}, not {expected}", event["stream"]))?;
    if let Ok(job) = stage.of_job() {
        let appended = stage.append(&job, "turn.started", json!({})).await?;
        let event = stage.event(&job.channel, appended.sequence(&job.channel)?).await?;
        let expected = json!(job.scope);
        ensure(event["stream"] == expected, || format!("of {}, not {expected}", event["stream"]))?;
    }
    Ok(())
}

async fn types(stage: &Stage) -> Checked {
    let place = stage.fresh();
    for name in ["moon.phase", "", "JOB.QUEUED", "job.queued "] {
        stage.refused(&json!({"scope": place.scope, "type": name, "data": {}})).await?;
    }
    let head = stage.head(&place.channel).await?;
    ensure(head == 0, || format!("the head is {head} all the same"))
}

async fn times(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let before = Utc::now();
    stage.append_some(&place, 5).await?;
    let after = Utc::now();
    let events = stage.replay(&place.channel, 0).await?.events;
    let texts: Vec<_> = events.iter().filter_map(|event| event["time"].as_str()).collect();
    let mut last = DateTime::<Utc>::MIN_UTC;
    for text in &texts {
        ensure(text.len() == 24 && text.ends_with('Z'), || format!("{text} has another form"))?;
        let time: DateTime<Utc> = text.parse()?;
        ensure(time >= last, || format!("{texts:?} go back"))?;
        last = time;
        // Clocks of two machines.
        let slack = TimeDelta::minutes(5);
        let is_now = before - slack <= time && time <= after + slack;
        ensure(is_now, || format!("{text} is not between {before} and {after}"))?;
    }
    let again = stage.replay(&place.channel, 0).await?.events;
    ensure(events == again, || "a second replay tells other times".to_owned())
}

async fn families(stage: &Stage) -> Checked {
    let job = stage.of_job()?;
    for (name, data) in [
        ("job.failed", json!({"state": "failed", "code": "X"})),
        ("stage.progress", json!({"stage": "generate", "done": 41, "total": null})),
        ("stage.started", json!({"stage": "resolve", "done": null, "total": null})),
        ("module.generated", json!({"module": "export", "key": "a"})),
        ("cache.hit", json!({"module": "export", "key": "a"})),
        ("retry.scheduled", json!({"module": "export", "attempt": 2})),
    ] {
        let appended = stage.append(&job, name, data.clone()).await?;
        let event = stage.event(&job.channel, appended.sequence(&job.channel)?).await?;
        ensure(event["data"] == data, || format!("{} is not {data}", event["data"]))?;
    }
    for (name, data) in [
        ("job.failed", json!({})),
        ("job.failed", json!({"state": "queued"})),
        ("stage.progress", json!({"stage": "generate", "done": 41})),
        ("stage.progress", json!({"done": 1, "total": 2})),
        ("stage.progress", json!({"stage": "lunch", "done": 1, "total": 2})),
        ("module.generated", json!({"key": "a"})),
        ("cache.hit", json!({})),
        ("retry.scheduled", json!({"attempt": 2})),
        ("turn.started", json!([])),
    ] {
        stage.refused(&json!({"scope": job.scope, "type": name, "data": data})).await?;
    }
    Ok(())
}

async fn secrets(stage: &Stage) -> Checked {
    let place = stage.fresh();
    let mark = "hunter2hunter2";
    let data = json!({
        "url": format!("postgres://ana:{mark}@db.example:5432/shop"),
        "header": format!("Authorization: Bearer {mark}"),
        "deep": {"list": [format!("password={mark}")]},
    });
    let appended = stage.append(&place, "release.candidate", data).await;
    // To refuse it is another way not to tell it.
    let Ok(_) = appended else { return Ok(()) };
    let event = stage.event(&place.channel, 1).await?.to_string();
    ensure(!event.contains(mark), || format!("told: {event}"))
}

async fn languages(stage: &Stage) -> Checked {
    let place = stage.fresh();
    stage.append(&place, "release.candidate", json!({"state": "failed"})).await?;
    let path = format!("/v1/channels/{}/events?after=0", place.channel);
    let mut answers = Vec::new();
    for language in ["en", "pt-BR", "es"] {
        let request = stage.client().request(Method::GET, &path).header(ACCEPT_LANGUAGE, language);
        answers.push(status_of(request).await?);
    }
    let same = answers.windows(2).all(|two| two[0] == two[1]);
    ensure(same && answers[0].0 == 200, || format!("{answers:?}"))
}

async fn lines(stage: &Stage) -> Checked {
    let job = stage.of_job()?;
    let line = |message: &str| {
        json!({"time": "2026-07-04T12:20:00.000Z", "level": "info", "stage": "generate",
            "message": message})
    };
    let data = json!({"lines": [line("half done"), line("password=hunter2hunter2")]});
    let appended = stage.append(&job, "log.batch", data).await?;
    let event = stage.event(&job.channel, appended.sequence(&job.channel)?).await?;
    let lines = event["data"]["lines"].as_array().cloned().unwrap_or_default();
    let expected = BTreeSet::from(["level", "message", "stage", "time"]);
    let sound = lines.len() == 2 && lines.iter().all(|line| names(line) == expected);
    ensure(sound && lines[0] == line("half done"), || format!("{lines:?}"))?;
    ensure(!event.to_string().contains("hunter2"), || format!("told: {event}"))?;
    let mut wide = line("m");
    wide["user"] = "ana".into();
    let event = json!({"scope": job.scope, "type": "log.batch", "data": {"lines": [wide]}});
    match stage.refused(&event).await {
        Ok(_) => Ok(()),
        Err(_) => Err(Flaw::Failed("a line with a fifth member was taken".to_owned())),
    }
}
