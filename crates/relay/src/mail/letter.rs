//! A letter and its form as a message.

use lettre::{
    Address, Message,
    message::{
        Mailbox, MultiPart,
        header::{HeaderName, HeaderValue},
    },
};

use super::MessageId;

/// Characters of a name in a header.
const NAME_CHARS: usize = 100;
/// Characters of a subject.
const SUBJECT_CHARS: usize = 200;

/// Who our mails are from.
#[derive(Clone, Debug)]
pub struct Sender(Mailbox);

/// To whom a letter goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addressee {
    /// How it is called, if that is known.
    pub name: Option<String>,
    /// Its address.
    pub address: String,
}

/// A mail before it has a form.
#[derive(Clone, Debug)]
pub struct Letter {
    /// The identity of all its copies.
    pub id: MessageId,
    /// To whom.
    pub to: Addressee,
    /// What it is about, in one line.
    pub subject: String,
    /// For readers without HTML.
    pub text: String,
    /// For the others.
    pub html: String,
}

/// Names or addresses that no mail can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unaddressable {
    /// Of the sender, as configured.
    #[error("the sender's address is no mail address")]
    Sender,
    /// Of the recipient.
    #[error("the recipient's address is no mail address")]
    Recipient,
    /// Anything else that was given.
    #[error("the message cannot be put together")]
    Message,
}

impl Sender {
    /// Reads `outport@example.com` or `Outport <outport@example.com>`.
    pub fn parse(text: &str) -> Result<Self, Unaddressable> {
        if text.contains(char::is_control) {
            return Err(Unaddressable::Sender);
        }
        text.parse().map(Self).map_err(|_| Unaddressable::Sender)
    }

    /// The part of the address after the `@`.
    pub fn domain(&self) -> &str {
        self.0.email.domain()
    }
}

impl Addressee {
    fn mailbox(&self) -> Result<Mailbox, Unaddressable> {
        let address: Address = self.address.trim().parse().map_err(|_| Unaddressable::Recipient)?;
        let address_is_plain = !address.to_string().contains(|c: char| {
            c.is_control() || c.is_whitespace() || matches!(c, '<' | '>' | ',' | ';' | '"')
        });
        if !address_is_plain {
            return Err(Unaddressable::Recipient);
        }
        let name = self.name.as_deref().map(|name| one_line(name, NAME_CHARS));
        Ok(Mailbox::new(name.filter(|name| !name.is_empty()), address))
    }
}

impl Letter {
    /// The message, with a text and an HTML form of the same content.
    pub(super) fn compose(&self, sender: &Sender) -> Result<Message, Unaddressable> {
        Message::builder()
            .from(sender.0.clone())
            .to(self.to.mailbox()?)
            .subject(one_line(&self.subject, SUBJECT_CHARS))
            .date_now()
            .message_id(Some(format!("<{}>", self.id)))
            // RFC 3834: no holiday notice answers this.
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ))
            .multipart(MultiPart::alternative_plain_html(self.text.clone(), self.html.clone()))
            .map_err(|_| Unaddressable::Message)
    }
}

/// A text as one line: what controls, breaks or reorders lines becomes a space. Whatever comes
/// from outside passes here before it gets into a header or a template.
pub(super) fn one_line(text: &str, most: usize) -> String {
    let plain = text.replace(
        |c: char| {
            c.is_control()
                || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
        },
        " ",
    );
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(most).collect()
}

#[cfg(test)]
mod tests {
    use outport_domain::id::EventId;

    use super::*;

    const SENDER: &str = "Outport <outport@example.com>";

    fn letter(name: &str, subject: &str) -> Letter {
        Letter {
            id: MessageId::of(EventId::new(), "send", "ana@example.com", "example.com"),
            to: Addressee { name: Some(name.to_owned()), address: "ana@example.com".to_owned() },
            subject: subject.to_owned(),
            text: "Hello".to_owned(),
            html: "<p>Hello</p>".to_owned(),
        }
    }

    fn composed(name: &str, subject: &str) -> String {
        let sender = Sender::parse(SENDER).expect("a sender");
        let message = letter(name, subject).compose(&sender).expect("a message");
        String::from_utf8(message.formatted()).expect("a message in ASCII")
    }

    /// The names of the headers, of unfolded lines.
    fn header_names(message: &str) -> Vec<&str> {
        let (headers, _) = message.split_once("\r\n\r\n").expect("headers and a body");
        headers
            .split("\r\n")
            .filter(|line| !line.starts_with([' ', '\t']))
            .map(|line| line.split(':').next().unwrap_or_default())
            .collect()
    }

    #[test]
    fn no_name_and_no_subject_adds_a_header() {
        let expected = [
            "From",
            "To",
            "Subject",
            "Date",
            "Message-ID",
            "Auto-Submitted",
            "MIME-Version",
            "Content-Type",
        ];
        for evil in [
            "a\r\nBcc: eve@evil.example",
            "a\nBcc: eve@evil.example",
            "a\rBcc: eve@evil.example",
            "a\r\n\r\nbody",
            "a\u{85}Bcc: eve@evil.example",
            "a\u{2028}Bcc: eve@evil.example",
            "a\u{0b}Bcc: x\u{0c}Bcc: y\0Bcc: z",
            "\r\n Bcc: eve@evil.example",
            "é\r\nBcc: eve@evil.example",
            "=?utf-8?q?=0D=0ABcc:_eve@evil.example?=",
            "\", <eve@evil.example>, \"",
            "Ana <eve@evil.example>, bea",
            "a\\\"\r\nBcc: eve@evil.example",
            &"é\r\nBcc: eve@evil.example ".repeat(40),
        ] {
            let message = composed(evil, evil);
            assert_eq!(header_names(&message), expected, "{evil:?}\n{message}");
            assert!(!message.contains("\nBcc"), "{evil:?}\n{message}");
            let parsed =
                mail_parser::MessageParser::default().parse(message.as_bytes()).expect("a message");
            let to = parsed.to().expect("a recipient").clone().into_list();
            assert_eq!(to.len(), 1, "{evil:?} made a recipient\n{message}");
            assert_eq!(to[0].address(), Some("ana@example.com"), "{evil:?}\n{message}");
            assert!(parsed.bcc().is_none(), "{evil:?}\n{message}");
        }
    }

    #[test]
    fn addresses_that_are_more_than_one_address_are_refused() {
        for evil in [
            "",
            "ana",
            "ana@",
            "ana@example.com\r\nBcc: eve@evil.example",
            "ana@example.com\r\nRCPT TO:<eve@evil.example>",
            "ana@example.com,eve@evil.example",
            "ana@example.com>, <eve@evil.example",
            "\"a\r\nb\"@example.com",
            "\"a b\"@example.com",
            "Ana <ana@example.com>",
            "ana@exa mple.com",
            "ana\0@example.com",
        ] {
            let to = Addressee { name: None, address: evil.to_owned() };
            assert_eq!(to.mailbox(), Err(Unaddressable::Recipient), "{evil:?}");
        }
        assert!(Sender::parse("Outport <outport@example.com>\r\nBcc: e@evil.example").is_err());
    }

    #[test]
    fn a_sender_is_an_address_with_or_without_a_name() {
        let domain = |text| Sender::parse(text).map(|sender| sender.domain().to_owned());
        assert_eq!(domain(SENDER), Ok("example.com".to_owned()));
        assert_eq!(domain("Outport <outport@localhost>"), Ok("localhost".to_owned()));
        assert_eq!(domain("outport@mail.example"), Ok("mail.example".to_owned()));
        assert_eq!(domain("outport"), Err(Unaddressable::Sender));
    }

    #[test]
    fn text_in_any_script_arrives_as_it_was() {
        let subject = "Seu arquivo “Relatório de março — 注文.csv” está pronto ✓";
        let message = composed("José Ñandú", subject);
        assert!(message.is_ascii(), "no server needs 8BITMIME for our mails");
        let parsed =
            mail_parser::MessageParser::default().parse(message.as_bytes()).expect("a message");
        assert_eq!(parsed.subject(), Some(subject));
        let to = parsed.to().and_then(|to| to.first()).expect("a recipient");
        assert_eq!(to.name(), Some("José Ñandú"));
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        assert_eq!(one_line(&"ñ".repeat(300), 200).chars().count(), 200);
        assert_eq!(one_line("  a \t b\u{202e} c ", 10), "a b c");
    }
}
