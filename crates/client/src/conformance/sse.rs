//! Who listens to server-sent events.

use std::pin::Pin;

use futures::{Stream, StreamExt as _};
use reqwest::RequestBuilder;

use super::{Flaw, ear::PATIENCE, ensure, stage::sent};

type Pieces = Pin<Box<dyn Stream<Item = Result<Vec<u8>, reqwest::Error>> + Send>>;

/// A listener.
pub(super) struct Sse {
    pieces: Pieces,
    unread: Vec<u8>,
}

/// What was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub event: String,
    pub data: String,
    pub id: String,
}

impl Sse {
    pub async fn open(request: RequestBuilder) -> Result<Self, Flaw> {
        let response = sent(request).await?;
        let status = response.status().as_u16();
        let kind = response.headers().get(reqwest::header::CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
        let is_stream = status == 200 && kind.starts_with("text/event-stream");
        ensure(is_stream, || format!("{status} {kind}"))?;
        let pieces = response.bytes_stream().map(|piece| piece.map(|bytes| bytes.to_vec()));
        Ok(Self { pieces: Box::pin(pieces), unread: Vec::new() })
    }

    /// The next event that has data.
    pub async fn next(&mut self) -> Result<Line, Flaw> {
        let late = |_| Flaw::Failed("nothing was sent in time".to_owned());
        tokio::time::timeout(PATIENCE, self.read()).await.map_err(late)?
    }

    async fn read(&mut self) -> Result<Line, Flaw> {
        loop {
            while let Some(end) = self.unread.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<u8> = self.unread.drain(..end + 2).collect();
                let line = Line::parse(&String::from_utf8_lossy(&block));
                if !line.data.is_empty() {
                    return Ok(line);
                }
            }
            let piece = self.pieces.next().await;
            let piece = piece.ok_or_else(|| Flaw::Failed("the stream ended".to_owned()))?;
            self.unread.extend(piece?);
        }
    }
}

impl Line {
    fn parse(block: &str) -> Self {
        let mut line = Self::default();
        for field in block.lines() {
            let Some((name, value)) = field.split_once(':') else { continue };
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "event" => value.clone_into(&mut line.event),
                "data" => line.data.push_str(value),
                "id" => value.clone_into(&mut line.id),
                _ => {}
            }
        }
        line
    }
}
