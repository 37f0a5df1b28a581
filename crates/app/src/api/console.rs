//! The console: a page at `/`, its scripts and its style, embedded at build time. Nothing of it
//! is secret, and nothing comes from elsewhere. The page works with the token that is typed into
//! it.

use std::{io::Write as _, sync::Arc};

use axum::{
    Extension,
    body::Bytes,
    http::{
        HeaderMap, HeaderValue,
        header::{
            ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, VARY,
        },
    },
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use outport_contract::digest::Sha256Digest;

use super::{
    extract::Segment,
    problem::{Outcome, Problem},
};

const PAGE: &str = "index.html";
/// No script and no style but our files; `'self'` is also the WebSocket of our own origin.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

macro_rules! console {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../../templates/console/", $name)))
    };
}

macro_rules! client {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../client/browser/", $name)))
    };
}

const FILES: [(&str, &str); 9] = [
    console!("index.html"),
    console!("console.css"),
    console!("icon.svg"),
    console!("api.js"),
    console!("card.js"),
    console!("console.js"),
    console!("form.js"),
    client!("consumer.js"),
    client!("stream.js"),
];

/// The files, ready to be sent.
pub struct Console(Vec<File>);

struct File {
    name: &'static str,
    content_type: HeaderValue,
    /// Weak: it is that of the file in either coding.
    tag: String,
    text: &'static str,
    gzipped: Bytes,
}

impl Console {
    /// Prepares what never changes while the process runs.
    pub fn load() -> Self {
        Self(FILES.into_iter().map(|(name, text)| File::new(name, text)).collect())
    }

    fn answer(&self, name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
        let file = self.0.iter().find(|file| file.name == name).ok_or_else(Problem::not_found)?;
        let opaque = |tag: &str| tag.trim_start_matches("W/").to_owned();
        let is_it = |tag: &str| tag == "*" || opaque(tag) == opaque(&file.tag);
        let mut response = if listed(headers, IF_NONE_MATCH).any(is_it) {
            Outcome::NotModified.into_response()
        } else if takes_gzip(headers) {
            let content = [
                (CONTENT_TYPE, file.content_type.clone()),
                (CONTENT_ENCODING, HeaderValue::from_static("gzip")),
            ];
            (content, file.gzipped.clone()).into_response()
        } else {
            ([(CONTENT_TYPE, file.content_type.clone())], file.text).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(VARY, HeaderValue::from(ACCEPT_ENCODING));
        headers.insert(ETAG, HeaderValue::try_from(&file.tag).expect("hex digits"));
        // Asked for anew each time, so that page and scripts are of one version; seldom sent.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        Ok(response)
    }
}

impl File {
    fn new(name: &'static str, text: &'static str) -> Self {
        let content_type = match name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        let tag = format!("W/\"{}\"", &Sha256Digest::of(text.as_bytes()).hex()[..32]);
        Self {
            name,
            content_type: HeaderValue::from_static(content_type),
            tag,
            text,
            gzipped: gzipped(text),
        }
    }
}

fn gzipped(text: &str) -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(text.as_bytes()).expect("memory takes all");
    packed.finish().expect("memory takes all").into()
}

/// The elements of a header that is a list.
fn listed(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &str> {
    let lists = headers.get_all(name).into_iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}

/// RFC 9110, 12.5.3: a weight of zero refuses.
fn takes_gzip(headers: &HeaderMap) -> bool {
    listed(headers, ACCEPT_ENCODING).any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.rsplit('=').next().unwrap_or_default().trim().parse::<f32>();
        name.trim().eq_ignore_ascii_case("gzip") && weight.unwrap_or(1.0) > 0.0
    })
}

/// The console.
#[utoipa::path(get, path = "/", tag = "operation",
    responses(
        (status = 200, description = "A page", content_type = "text/html"),
        (status = 304, description = "The caller has it already"),
    ))]
pub async fn page(
    Extension(console): Extension<Arc<Console>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    console.answer(PAGE, &headers)
}

/// A file of the console.
#[utoipa::path(get, path = "/console/{name}", tag = "operation",
    params(("name" = String, Path)),
    responses(
        (status = 200, description = "A script, a style or an icon", content_type = "*/*"),
        (status = 304, description = "The caller has it already"),
        (status = 404, description = "There is no such file"),
    ))]
pub async fn file(
    Extension(console): Extension<Arc<Console>>,
    name: Segment,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    console.answer(&name.0, &headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of everything that a first visit loads, as it travels.
    const MOST_BYTES: usize = 40 * 1024;

    #[test]
    fn the_console_is_small_and_has_nothing_inline_or_from_elsewhere() {
        let console = Console::load();
        let size: usize = console.0.iter().map(|file| file.gzipped.len()).sum();
        assert!(size < MOST_BYTES, "{size} bytes");
        let (_, page) = FILES[0];
        let is_inline = |word: &str| word.contains('=') && word.starts_with("on");
        assert!(!page.contains("style=") && !page.contains("<style"));
        assert!(!page.split_whitespace().any(is_inline));
        assert_eq!(page.matches("<script").count(), 1);
        for (name, text) in FILES {
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            let elsewhere = elsewhere.lines().filter(|line| !line.trim_start().starts_with('*'));
            for line in elsewhere {
                assert!(!line.contains("http://") && !line.contains("https://"), "{name}: {line}");
            }
        }
    }

    #[test]
    fn every_file_that_the_page_and_its_scripts_name_is_there() {
        let console = Console::load();
        let is_there = |name: &str| console.0.iter().any(|file| file.name == name);
        let mut named = 0;
        for (_, text) in FILES {
            for start in ["=\"console/", "from \"./"] {
                for (at, _) in text.match_indices(start) {
                    let name = text[at + start.len()..].split('"').next().expect("an end");
                    assert!(is_there(name), "{name}");
                    named += 1;
                }
            }
        }
        assert!(named > FILES.len());
    }

    #[test]
    fn gzip_is_for_those_who_take_it() {
        for (accepted, takes) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("deflate, gzip ; q=0.1", true),
            ("gzip;q=0", false),
            ("gzip ; Q = 0", false),
            ("gzip;q=0.000, br", false),
            ("identity", false),
            ("x-gzipped", false),
            ("", false),
        ] {
            let headers = [(ACCEPT_ENCODING, HeaderValue::from_static(accepted))];
            assert_eq!(takes_gzip(&headers.into_iter().collect()), takes, "{accepted}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
