//! Letters over the wire to a real SMTP server, and into a folder.

use std::time::Instant;

use outport_domain::id::EventId;
use outport_relay::{
    Disposition, HandlerError,
    mail::{Addressee, CONNECT_TIME, Letter, MailError, MailUrl, Mailer, MessageId, Sender},
};

use crate::smtp_server::{About, SmtpServer};

const PLAIN: &str = "tls=none";

fn mailer(url: &str) -> Mailer {
    let url = MailUrl::parse(url).expect("a mail URL");
    Mailer::new(&url, Sender::parse("Outport <outport@example.com>").expect("a sender"))
        .expect("a mailer")
}

fn letter() -> Letter {
    letter_to("ana@example.org", "José Ñandú", "Olá: “março.csv” está pronto")
}

fn letter_to(address: &str, name: &str, subject: &str) -> Letter {
    Letter {
        id: MessageId::of(EventId::new(), "send-test-message", address, "example.com"),
        to: Addressee { name: Some(name.to_owned()), address: address.to_owned() },
        subject: subject.to_owned(),
        // A line of one dot ends a message unless it is stuffed.
        text: "Olá\n.\n..\nfim ✓\n".to_owned(),
        html: "<p lang=\"pt-BR\">Olá ✓</p>".to_owned(),
    }
}

#[tokio::test]
async fn a_letter_arrives_as_it_was_written() {
    let server = SmtpServer::start(&[]);
    let letter = letter();
    mailer(&server.url("smtp", "", PLAIN)).send(&letter).await.expect("it is sent");

    let taken = server.taken();
    assert_eq!(taken.len(), 1);
    let expected = About {
        from: "outport@example.com".to_owned(),
        to: vec!["ana@example.org".to_owned()],
        tls: false,
        login: false,
    };
    assert_eq!(taken[0].about, expected);
    let message = taken[0].message();
    assert_eq!(message.subject(), Some(letter.subject.as_str()));
    assert_eq!(message.message_id(), Some(letter.id.to_string().as_str()));
    let to = message.to().and_then(|to| to.first()).expect("a recipient");
    assert_eq!((to.name(), to.address()), (Some("José Ñandú"), Some("ana@example.org")));
    let from = message.from().and_then(|from| from.first()).expect("a sender");
    assert_eq!((from.name(), from.address()), (Some("Outport"), Some("outport@example.com")));
    let age = chrono::Utc::now().timestamp() - message.date().expect("a date").to_timestamp();
    assert!((0..60).contains(&age), "the date is now");
    let automatic = message.header_raw("Auto-Submitted").map(str::trim);
    assert_eq!(automatic, Some("auto-generated"));
    let content_type = message.header_raw("Content-Type").expect("a content type");
    assert!(content_type.trim().starts_with("multipart/alternative"), "{content_type}");
    let text = message.body_text(0).expect("a text").replace("\r\n", "\n");
    assert_eq!(text.trim_end(), letter.text.trim_end());
    assert_eq!(message.body_html(0).expect("HTML").trim_end(), letter.html);
}

#[tokio::test]
async fn nothing_in_a_letter_adds_a_header_a_recipient_or_a_message() {
    let server = SmtpServer::start(&[]);
    let mailer = mailer(&server.url("smtp", "", PLAIN));
    let evil = "x\r\nBcc: eve@evil.example\r\n\r\n.\r\nMAIL FROM:<eve@evil.example>\r\n";
    let letter = Letter {
        text: evil.to_owned(),
        html: evil.to_owned(),
        ..letter_to("ana@example.org", evil, evil)
    };
    mailer.send(&letter).await.expect("it is sent");
    let taken = server.taken();
    assert_eq!(taken.len(), 1, "one message stays one");
    assert_eq!(taken[0].about.to, ["ana@example.org"]);
    assert!(taken[0].message().bcc().is_none());

    let evil_address = letter_to("ana@example.org>\r\nRCPT TO:<eve@evil.example", "Ana", "Hi");
    let error = mailer.send(&evil_address).await.expect_err("no such address");
    assert_eq!(error.disposition(), Disposition::Dead);
    assert_eq!(server.taken().len(), 1);
}

#[tokio::test]
async fn what_the_server_answers_decides_what_now() {
    for (arguments, disposition, reply) in [
        (["--reply", "451 4.7.1 ana@example.org: greylisted"], Disposition::Retry, "(451 4.7.1)"),
        (["--reply", "550 5.7.1 spam from 10.0.0.7"], Disposition::Dead, "(550 5.7.1)"),
        (
            ["--reply-rcpt", "550 5.1.1 <ana@example.org>: unknown"],
            Disposition::Dead,
            "(550 5.1.1)",
        ),
        (["--reply-rcpt", "452 too many"], Disposition::Retry, "(452)"),
        (["--reply-rcpt", "530 5.7.0 log in first"], Disposition::Retry, "(530 5.7.0)"),
    ] {
        let server = SmtpServer::start(&arguments);
        let error = mailer(&server.url("smtp", "", PLAIN)).send(&letter()).await;
        let error = error.expect_err("the server does not take it");
        assert_eq!(error.disposition(), disposition, "{arguments:?}: {error}");
        assert!(error.to_string().ends_with(reply), "{arguments:?}: {error}");
        assert!(!format!("{error:?}{error}").contains("ana@"), "{arguments:?}: {error:?}");
        assert_eq!(server.taken().len(), 0, "{arguments:?}");
    }
}

#[tokio::test]
async fn a_cut_after_data_is_unknown_and_the_copy_has_the_same_identity() {
    let server = SmtpServer::start(&["--cut-after-data", "--times", "1"]);
    let (mailer, letter) = (mailer(&server.url("smtp", "", PLAIN)), letter());
    let error = mailer.send(&letter).await.expect_err("no answer came");
    assert!(matches!(error, MailError::Broken(_)), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Retry);
    mailer.send(&letter).await.expect("the second goes through");
    let ids: Vec<_> = server.taken().iter().map(crate::smtp_server::Taken::id).collect();
    assert_eq!(ids, [letter.id.to_string(), letter.id.to_string()]);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port();
    drop(listener);
    let error = mailer(&format!("smtp://127.0.0.1:{port}?tls=none")).send(&letter()).await;
    let error = error.expect_err("nobody listens");
    assert!(matches!(error, MailError::Unreachable(_)), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Retry);
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_in_time() {
    let server = SmtpServer::start(&["--silent"]);
    let began = Instant::now();
    let error = mailer(&server.url("smtp", "", PLAIN)).send(&letter()).await;
    let error = error.expect_err("it never greets");
    assert!(matches!(error, MailError::TooSlow), "{error:?}");
    assert_eq!(error.disposition(), Disposition::Retry);
    assert!(began.elapsed() < CONNECT_TIME * 2, "{:?}", began.elapsed());
}

#[tokio::test]
async fn starttls_with_login_takes_the_private_authority() {
    let login = ["--tls", "starttls", "--login", "us@er:p:w+ä"];
    let server = SmtpServer::start(&login);
    let query = format!("tls=required&{}", server.authority());
    mailer(&server.url("smtp", "us%40er:p%3Aw+%C3%A4", &query))
        .send(&letter())
        .await
        .expect("it is sent");
    let taken = server.taken();
    assert!(taken[0].about.tls && taken[0].about.login, "{:?}", taken[0].about);
}

#[tokio::test]
async fn smtps_with_login_takes_the_private_authority() {
    let server = SmtpServer::start(&["--tls", "wrapped", "--login", "user:secret"]);
    let mailer = mailer(&server.url("smtps", "user:secret", &server.authority()));
    mailer.check().await.expect("it answers and takes the login");
    mailer.send(&letter()).await.expect("it is sent");
    let taken = server.taken();
    assert!(taken[0].about.tls && taken[0].about.login, "{:?}", taken[0].about);
}

#[tokio::test]
async fn no_mail_goes_to_a_server_without_the_tls_that_was_asked_for() {
    let plain = SmtpServer::start(&[]);
    let error = mailer(&plain.url("smtp", "", "tls=required")).send(&letter()).await;
    let error = error.expect_err("no STARTTLS is offered");
    assert!(matches!(error, MailError::Unreachable(_)), "{error:?}");
    assert_eq!(plain.taken().len(), 0);

    let stranger = SmtpServer::start(&["--tls", "starttls"]);
    let error = mailer(&stranger.url("smtp", "", "tls=required")).send(&letter()).await;
    let error = error.expect_err("its authority is unknown");
    assert!(matches!(error, MailError::Unreachable(_)), "{error:?}");
    assert_eq!(stranger.taken().len(), 0);
}

#[tokio::test]
async fn opportunistic_tls_takes_what_is_offered() {
    let plain = SmtpServer::start(&[]);
    let query = "tls=opportunistic";
    mailer(&plain.url("smtp", "", query)).send(&letter()).await.expect("without TLS");
    assert!(!plain.taken()[0].about.tls);

    let offering = SmtpServer::start(&["--tls", "starttls"]);
    let query = format!("{query}&{}", offering.authority());
    mailer(&offering.url("smtp", "", &query)).send(&letter()).await.expect("with TLS");
    assert!(offering.taken()[0].about.tls);
}

#[tokio::test]
async fn a_refused_login_is_tried_again_and_no_text_holds_the_password() {
    let server = SmtpServer::start(&["--tls", "starttls", "--login", "user:right-secret"]);
    let query = format!("tls=required&{}", server.authority());
    let error = mailer(&server.url("smtp", "user:wrong-secret", &query)).send(&letter()).await;
    let error = error.expect_err("the password is wrong");
    assert_eq!(error.to_string(), "the mail server refuses the login (535 5.7.8)");
    assert_eq!(error.disposition(), Disposition::Retry);
    let texts = format!("{error:?}");
    let failure = HandlerError::from(error);
    let texts = format!("{texts} {failure} {failure:?}");
    assert!(!texts.contains("secret") && !texts.contains("localhost"), "{texts}");
}

#[tokio::test]
async fn a_copy_in_a_folder_overwrites_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("deep/mail");
    let mailer = mailer(&format!("file://{}", path.display()));
    let (first, second) = (letter(), letter());
    for letter in [&first, &first, &second] {
        mailer.send(letter).await.expect("it is written");
    }
    mailer.check().await.expect("the folder can be written");
    let mut names: Vec<_> = std::fs::read_dir(&path)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    let mut expected = [&first, &second].map(|letter| format!("{}.eml", letter.id.local()));
    expected.sort();
    assert_eq!(names, expected, "nothing else is left in the folder");
    let raw = std::fs::read(path.join(&expected[0])).expect("the file");
    let message = mail_parser::MessageParser::default().parse(&raw).expect("a message");
    assert_eq!(message.subject(), Some(first.subject.as_str()));
}
