//! The console: a page at `/`, its scripts and its style, embedded at build time. Nothing of it
//! is secret, and nothing comes from elsewhere. The page works with the token that is typed into
//! it.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    Extension,
    body::Bytes,
    http::{
        HeaderMap, HeaderValue,
        header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH},
    },
    response::{IntoResponse, Response},
};
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
    tag: HeaderValue,
    bytes: Bytes,
}

impl Console {
    /// Prepares what never changes while the process runs.
    pub fn load() -> Self {
        Self(FILES.into_iter().map(|(name, text)| File::new(name, text)).collect())
    }

    fn answer(&self, name: &str, headers: &HeaderMap) -> Result<Response, Problem> {
        let file = self.0.iter().find(|file| file.name == name).ok_or_else(Problem::not_found)?;
        let known = headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
        let mut known = known.flat_map(|tags| tags.split(',')).map(str::trim);
        let is_known = known.any(|tag| file.tag == tag.trim_start_matches("W/"));
        let mut response = if is_known {
            Outcome::NotModified.into_response()
        } else {
            ([(CONTENT_TYPE, file.content_type.clone())], file.bytes.clone()).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(ETAG, file.tag.clone());
        // Asked for anew each time, so that page and scripts are of one version; seldom sent.
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        Ok(response)
    }
}

impl File {
    fn new(name: &'static str, text: &str) -> Self {
        let content_type = match name.rsplit('.').next() {
            Some("html") => "text/html; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/javascript; charset=utf-8",
        };
        let text = match content_type {
            "image/svg+xml" => text.to_owned(),
            "text/css; charset=utf-8" => bare_style(text),
            "text/html; charset=utf-8" => without_indentation(text),
            _ => bare(text),
        };
        let tag = format!("\"{}\"", &Sha256Digest::of(text.as_bytes()).hex()[..32]);
        Self {
            name,
            content_type: HeaderValue::from_static(content_type),
            tag: HeaderValue::try_from(tag).expect("hex digits"),
            bytes: text.into(),
        }
    }
}

/// A script without its comments but those at the end of a line, without indentation, and without
/// spaces around what needs none: half its size, without a tool. No text of ours goes over several
/// lines, has the beginning of a comment, or such an operator between spaces.
fn bare(script: &str) -> String {
    let operators = [" = ", " => ", " === ", " !== ", " && ", " || ", " ?? "];
    let mut bare = String::with_capacity(script.len());
    let mut in_comment = false;
    for line in script.lines().map(str::trim) {
        if in_comment {
            in_comment = !line.ends_with("*/");
        } else if line.starts_with("/*") && !line.contains("*/") {
            in_comment = true;
        } else if !(line.is_empty()
            || line.starts_with("//")
            || line.starts_with("/*") && line.ends_with("*/"))
        {
            let mut pieces = line.split("/** ");
            let mut line = pieces.next().unwrap_or_default().to_owned();
            for piece in pieces {
                line.push_str(piece.split_once("*/").map_or(piece, |(_, code)| code.trim_start()));
            }
            writeln!(bare, "{line}").expect("a text grows");
        }
    }
    operators.into_iter().fold(bare, |bare, operator| bare.replace(operator, operator.trim()))
}

/// A style without indentation, and without spaces where none are needed. No text of ours has a
/// mark before a space.
fn bare_style(style: &str) -> String {
    let marks = ['{', ';', ':', ','];
    let bare = without_indentation(style);
    marks.into_iter().fold(bare, |bare, mark| bare.replace(&format!("{mark} "), &mark.to_string()))
}

fn without_indentation(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).fold(
        String::with_capacity(text.len()),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    )
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

    /// Bytes of everything that a first visit loads.
    const MOST_BYTES: usize = 60 * 1024;

    #[test]
    fn the_console_is_small_and_has_nothing_inline_or_from_elsewhere() {
        let console = Console::load();
        let size: usize = console.0.iter().map(|file| file.bytes.len()).sum();
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
    fn a_script_loses_its_comments_a_style_its_spaces_and_neither_anything_else() {
        let script = "/** What it\n * is. */\nconst a = 1; // kept\n\n  // gone\n  /* gone */\n  \
                      f(/** @type {any} */ (a));\n  /** @type {any} */ (a).b();\n  \
                      const c = () => a === 1 && b ? \"a: b\" : c ??\n    d;\n";
        let expected = "const a=1; // kept\nf((a));\n(a).b();\n\
                        const c=()=>a===1&&b ? \"a: b\" : c ??\nd;\n";
        assert_eq!(bare(script), expected);
        let style = "/* what */\na:hover, b > i {\n  color: red; top: 0;\n\n}\n";
        assert_eq!(bare_style(style), "/* what */\na:hover,b > i {\ncolor:red;top:0;\n}\n");
    }
}
