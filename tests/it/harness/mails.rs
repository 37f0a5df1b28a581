//! Mails as a reader sees them.

/// The subject and the text part of a mail.
pub fn text_of(mail: &[u8]) -> String {
    let message = mail_parser::MessageParser::default().parse(mail).expect("a mail");
    let text = message.body_text(0).expect("a text part");
    format!("{}\n{text}", message.subject().expect("a subject"))
}

/// The Message-ID of a mail.
pub fn message_id(mail: &[u8]) -> String {
    let message = mail_parser::MessageParser::default().parse(mail).expect("a mail");
    message.message_id().expect("a Message-ID").to_owned()
}
