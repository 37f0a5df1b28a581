//! The mails of finished and failed exports, from the commit to the server's mailbox.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use chrono_tz::Tz;
use outport_contract::{
    key::MasterKey,
    link::{LinkKeys, LinkToken, Recipient},
};
use outport_domain::{
    crash::{CrashPlan, CrashPoint},
    job::ExportJob,
    limits::Limits,
    locale::Locale,
    resource::Resource,
};
use outport_relay::{
    Outcome, Registry,
    handlers::{
        Correspondence, ResourceWords, SendExportCompletedMessage, SendExportFailedMessage,
    },
    mail::{MailUrl, Mailer, Sender, Templates, instant},
};
use outport_store::deliveries::{self, DeliveryStatus};

use crate::{
    smtp_server::SmtpServer,
    world::{Asked, PATIENCE, World, on_both_stores, quick, work_off},
};

const COMPLETED: &str = "send-export-completed-message";
const FAILED: &str = "send-export-failed-message";

on_both_stores![
    a_completed_export_is_told_in_the_requesters_language,
    a_failed_export_is_told_with_its_reason,
    the_link_is_bound_to_job_user_recipient_and_expiry,
    another_recipient_gets_the_mail_but_not_the_requesters_name,
    a_kill_between_send_and_receipt_sends_the_same_message_id_twice,
    the_same_event_twice_sends_one_mail,
    a_server_that_asks_to_try_later_gets_the_mail_later,
    a_refused_mail_is_dead_and_says_so_without_the_address,
    nobody_to_write_to_is_done_with_a_receipt,
    no_mail_promises_a_file_that_is_gone,
];

const ORDER: &str = r#"
    name = "order"
    connection = "shop"
    from = "sales.orders"
    keyStem = "orders"
    timeZone = "America/Sao_Paulo"
    fileName = { pt-BR = "pedidos" }
    [scope]
    organization = "organization_id"
    [[columns]]
    key = "code"
    type = "text"
"#;

/// Both handlers, writing to this server.
struct Office {
    server: SmtpServer,
    master: MasterKey,
}

impl Office {
    fn open(arguments: &[&str]) -> Self {
        Self { server: SmtpServer::start(arguments), master: MasterKey::generate() }
    }

    fn registry(&self) -> Registry {
        let url = MailUrl::parse(&self.server.url("smtp", "", "tls=none")).expect("a URL");
        let sender = Sender::parse("Outport <outport@example.com>").expect("a sender");
        let resource = Resource::from_toml(ORDER).expect("a resource");
        let words = ResourceWords::from(&resource);
        let correspondence = Arc::new(Correspondence {
            mailer: Mailer::new(&url, sender).expect("a mailer"),
            templates: Templates::load().expect("templates"),
            public_url: "https://exports.example/outport/".parse().expect("a URL"),
            link_keys: LinkKeys::new(1, &self.master),
            resources: BTreeMap::from([(resource.name.clone(), words)]),
        });
        let mut registry = Registry::new();
        registry
            .register(SendExportCompletedMessage::new(Arc::clone(&correspondence)))
            .expect("a name of its own");
        registry.register(SendExportFailedMessage::new(correspondence)).expect("a name of its own");
        registry
    }

    /// The texts of all mails, oldest first.
    fn texts(&self) -> Vec<String> {
        let taken = self.server.taken();
        taken.iter().map(|taken| taken.message().body_text(0).expect("a text").into()).collect()
    }

    fn link(&self) -> LinkToken {
        let text = self.texts().remove(0);
        let start = "https://exports.example/outport/d/";
        let at = text.find(start).expect("a link") + start.len();
        let token = text[at..].split_whitespace().next().expect("a token");
        LinkToken::verify(&LinkKeys::new(1, &self.master), token).expect("a token of ours")
    }
}

async fn a_completed_export_is_told_in_the_requesters_language(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let asked = Asked { locale: Locale::PtBr, ..Asked::default() };
    let job = world.completed(&asked).await;
    work_off(&mut relay).await;
    let taken = office.server.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].about.to, ["ana@example.org"]);
    let message = taken[0].message();
    assert_eq!(message.subject(), Some("Sua exportação março.csv está pronta"));
    let text = office.texts()[0].replace("\r\n", "\n");
    let expires = expires(&job, Tz::America__Sao_Paulo, Locale::PtBr);
    for said in ["Olá, Ana!", "pedidos", "Linhas: 1.234\n", "56,8 kB", &expires] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert_eq!(world.delivery(job.id, COMPLETED).await.status, DeliveryStatus::Done);
    let receipt = receipt(world, &job, "ana@example.org").await;
    assert_eq!(receipt.as_deref(), message.message_id());
}

async fn a_failed_export_is_told_with_its_reason(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let asked = Asked { locale: Locale::Es, ..Asked::default() };
    let job = world.failed(&asked).await;
    work_off(&mut relay).await;
    let taken = office.server.taken();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message().subject(), Some("Su exportación março.csv ha fallado"));
    let text = &office.texts()[0];
    for said in ["Restrinja los filtros.", "LIMIT_EXCEEDED", &job.id.to_string(), "more than 10"] {
        assert!(text.contains(said), "{said} in {text}");
    }
    assert!(!text.contains("/d/"), "there is nothing to link to");
    assert_eq!(world.delivery(job.id, FAILED).await.status, DeliveryStatus::Done);
}

async fn the_link_is_bound_to_job_user_recipient_and_expiry(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let asked = Asked { request: r#"{"timeZone":"Asia/Tokyo"}"#, ..Asked::default() };
    let job = world.completed(&asked).await;
    work_off(&mut relay).await;
    let expected = LinkToken {
        job: job.id.uuid(),
        user: job.caller.user.uuid(),
        recipient: Recipient::of_email("ana@example.org"),
        expires_at: job.expires_at.expect("an expiry").timestamp(),
    };
    assert_eq!(office.link(), expected);
    let expires = expires(&job, Tz::Asia__Tokyo, Locale::En);
    assert!(office.texts()[0].contains(&expires), "the request's zone wins");
}

async fn another_recipient_gets_the_mail_but_not_the_requesters_name(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let asked = Asked { notify_email: Some("boss@example.org"), ..Asked::default() };
    world.completed(&asked).await;
    work_off(&mut relay).await;
    let taken = office.server.taken();
    assert_eq!(taken[0].about.to, ["boss@example.org"]);
    let text = &office.texts()[0];
    assert!(text.starts_with("Hello,"), "{text}");
    assert!(text.contains("Requested by: Ana"), "{text}");
    assert_eq!(office.link().recipient, Recipient::of_email("boss@example.org"));
}

async fn a_kill_between_send_and_receipt_sends_the_same_message_id_twice(world: &World) {
    for point in [CrashPoint::AfterSend, CrashPoint::BeforeReceipt] {
        let office = Office::open(&[]);
        let limits = Limits { lease: Duration::from_millis(300), ..quick() };
        let (crash, gate) = CrashPlan::pausing(point);
        let mut killed = world.crashing_relay(office.registry(), limits.clone(), crash).await;
        let job = world.completed(&Asked::default()).await;
        assert_eq!(killed.tick().await.expect("a look"), Outcome::Worked(1));
        gate.reached(PATIENCE).await;
        drop(killed);

        let mut relay = world.relay(office.registry(), limits).await;
        work_off(&mut relay).await;
        let taken = office.server.taken();
        assert_eq!(taken.len(), 2, "{point}");
        assert_eq!(taken[0].id(), taken[1].id(), "{point}");
        assert_eq!(world.delivery(job.id, COMPLETED).await.status, DeliveryStatus::Done);
    }
}

async fn the_same_event_twice_sends_one_mail(world: &World) {
    let office = Office::open(&[]);
    let limits = Limits { lease: Duration::from_millis(300), ..quick() };
    let mut relay = world.relay(office.registry(), limits.clone()).await;
    let job = world.completed(&Asked::default()).await;
    // An earlier attempt has sent the mail and recorded it, and was lost before its end.
    let mut tx = world.store.begin().await.expect("a transaction");
    let claims = deliveries::claim(&mut tx, COMPLETED, limits.lease, 1).await.expect("a claim");
    tx.commit().await.expect("a commit");
    let mut tx = world.store.begin().await.expect("a transaction");
    let event = claims[0].event.id;
    deliveries::record_receipt(&mut tx, event, COMPLETED, "ana@example.org", "sent")
        .await
        .expect("a receipt");
    tx.commit().await.expect("a commit");

    work_off(&mut relay).await;
    let delivery = world.delivery(job.id, COMPLETED).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Done, 2));
    assert_eq!(office.server.taken().len(), 0, "it had been sent");
}

async fn a_server_that_asks_to_try_later_gets_the_mail_later(world: &World) {
    let office = Office::open(&["--reply", "451 4.7.1 later", "--times", "2"]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    assert_eq!(office.server.taken().len(), 1);
    let delivery = world.delivery(job.id, COMPLETED).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Done, 3));
}

async fn a_refused_mail_is_dead_and_says_so_without_the_address(world: &World) {
    let office = Office::open(&["--reply-rcpt", "550 5.1.1 <ana@example.org>: unknown"]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let job = world.completed(&Asked::default()).await;
    work_off(&mut relay).await;
    let dead = world.delivery(job.id, COMPLETED).await;
    assert_eq!((dead.status, dead.attempts), (DeliveryStatus::Dead, 1));
    let error = "the mail server refuses the message (550 5.1.1)";
    assert_eq!(dead.last_error.as_deref(), Some(error));
    assert_eq!(world.job(job.id).await, job);
}

async fn nobody_to_write_to_is_done_with_a_receipt(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let asked = Asked { email: None, name: None, ..Asked::default() };
    let job = world.completed(&asked).await;
    work_off(&mut relay).await;
    assert_eq!(world.delivery(job.id, COMPLETED).await.status, DeliveryStatus::Done);
    assert_eq!(receipt(world, &job, "").await.as_deref(), Some("no-recipient"));
    assert_eq!(office.server.taken().len(), 0);
}

async fn no_mail_promises_a_file_that_is_gone(world: &World) {
    let office = Office::open(&[]);
    let mut relay = world.relay(office.registry(), quick()).await;
    let job = world.completed(&Asked::default()).await;
    let mut tx = world.store.begin().await.expect("a transaction");
    outport_store::jobs::delete_file(&mut tx, world.organization, job.id)
        .await
        .expect("a deletion")
        .expect("the job");
    tx.commit().await.expect("a commit");
    work_off(&mut relay).await;
    assert_eq!(world.delivery(job.id, COMPLETED).await.status, DeliveryStatus::Done);
    assert_eq!(receipt(world, &job, "").await.as_deref(), Some("file-gone"));
    assert_eq!(office.server.taken().len(), 0);
}

async fn receipt(world: &World, job: &ExportJob, target: &str) -> Option<String> {
    let event = world.delivery(job.id, COMPLETED).await.event.id;
    deliveries::receipt(&world.store, event, COMPLETED, target).await.expect("an answer")
}

fn expires(job: &ExportJob, zone: Tz, locale: Locale) -> String {
    instant(job.expires_at.expect("an expiry"), zone, locale)
}
