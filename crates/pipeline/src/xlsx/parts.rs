//! The XML of a workbook (ECMA-376): what never changes, and what cells are made of.

use std::{fmt::Write as _, io::Write as _};

use outport_domain::column::ColumnType;

/// Where the sheet stands in the archive.
pub(super) const SHEET: &str = "xl/worksheets/sheet1.xml";
/// What ends the sheet.
pub(super) const SHEET_END: &str = "</sheetData></worksheet>";

const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"yes\"?>\n";
const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const CONTENT_TYPES: &str = r#"<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType="application/xml"/><Override PartName="/xl/workbook.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"/><Override PartName="/xl/worksheets/sheet1.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.worksheet+xml"/><Override PartName="/xl/styles.xml" ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.styles+xml"/></Types>"#;
const ROOT_RELATIONSHIPS: &str = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="xl/workbook.xml"/></Relationships>"#;
const WORKBOOK_RELATIONSHIPS: &str = r#"<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/worksheet" Target="worksheets/sheet1.xml"/><Relationship Id="rId2" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/styles" Target="styles.xml"/></Relationships>"#;
/// The formats of `cellXfs` stand in the order of [`Style`].
const STYLES: &str = r#"<styleSheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><numFmts count="3"><numFmt numFmtId="164" formatCode="yyyy\-mm\-dd"/><numFmt numFmtId="165" formatCode="yyyy\-mm\-dd\ hh:mm:ss"/><numFmt numFmtId="166" formatCode="hh:mm:ss"/></numFmts><fonts count="2"><font><sz val="11"/><name val="Calibri"/><family val="2"/></font><font><b/><sz val="11"/><name val="Calibri"/><family val="2"/></font></fonts><fills count="2"><fill><patternFill patternType="none"/></fill><fill><patternFill patternType="gray125"/></fill></fills><borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders><cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs><cellXfs count="6"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/><xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" quotePrefix="1" applyFont="1"/><xf numFmtId="164" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="165" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="166" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0" quotePrefix="1"/></cellXfs><cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>"#;

/// How a cell looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As ever.
    Plain,
    /// Bold.
    Header,
    /// `2026-07-01`
    Date,
    /// `2026-07-01 13:45:00`
    Timestamp,
    /// `13:45:00`
    Time,
    /// A text that stays one when the cell is edited.
    Quoted,
}

/// All parts but the sheet, by their names in the archive.
pub(super) fn around(title: &str) -> [(&'static str, String); 5] {
    let mut name = Vec::new();
    escape(title, &mut name);
    let name = String::from_utf8_lossy(&name).replace('"', "&quot;");
    let workbook = format!(
        r#"<workbook xmlns="{MAIN}" xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"><sheets><sheet name="{name}" sheetId="1" r:id="rId1"/></sheets></workbook>"#
    );
    [
        ("[Content_Types].xml", CONTENT_TYPES),
        ("_rels/.rels", ROOT_RELATIONSHIPS),
        ("xl/workbook.xml", &workbook),
        ("xl/_rels/workbook.xml.rels", WORKBOOK_RELATIONSHIPS),
        ("xl/styles.xml", STYLES),
    ]
    .map(|(path, xml)| (path, format!("{DECLARATION}{xml}")))
}

/// What stands before the rows: the header is frozen, and columns are wide enough for their type.
pub(super) fn sheet_head(widths: impl Iterator<Item = usize>, xml: &mut Vec<u8>) {
    let mut head = format!(
        r#"{DECLARATION}<worksheet xmlns="{MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><cols>"#
    );
    for (number, width) in (1..).zip(widths) {
        write!(head, r#"<col min="{number}" max="{number}" width="{width}" customWidth="1"/>"#)
            .expect("a string takes all");
    }
    head.push_str("</cols><sheetData>");
    xml.extend_from_slice(head.as_bytes());
}

/// In characters.
pub(super) fn width(column_type: ColumnType, label: &str) -> usize {
    let least = match column_type {
        ColumnType::LocalTimestamp | ColumnType::Timestamp => 20,
        ColumnType::Uuid => 37,
        ColumnType::Text | ColumnType::Json | ColumnType::Binary => 16,
        _ => 12,
    };
    least.max(label.chars().count() + 2).min(60)
}

/// A name that a sheet may have.
pub(super) fn title(word: &str) -> String {
    let allowed = |c: &char| !c.is_control() && !"[]:*?/\\'".contains(*c);
    let mut units = 0;
    let fits = |c: &char| {
        units += c.len_utf16();
        units <= 31
    };
    let name: String = word.chars().filter(allowed).take_while(fits).collect();
    // The one that spreadsheets keep for themselves.
    if name.is_empty() || name.eq_ignore_ascii_case("history") { "Export".to_owned() } else { name }
}

/// The letters of a column, counted from 0: `A`, …, `Z`, `AA`, …
pub(super) fn letters(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    if index < 26 { letter.to_string() } else { format!("{}{letter}", letters(index / 26 - 1)) }
}

pub(super) fn row_start(row: u64, xml: &mut Vec<u8>) {
    write!(xml, "<row r=\"{row}\">").expect("a buffer takes all");
}

/// The start tag of a cell up to its type.
fn cell_start(letters: &str, row: u64, style: Style, xml: &mut Vec<u8>) {
    xml.extend_from_slice(b"<c r=\"");
    xml.extend_from_slice(letters.as_bytes());
    xml.extend_from_slice(itoa::Buffer::new().format(row).as_bytes());
    xml.push(b'"');
    if style != Style::Plain {
        xml.extend_from_slice(&[b' ', b's', b'=', b'"', b'0' + style as u8, b'"']);
    }
}

pub(super) fn number_cell(letters: &str, row: u64, style: Style, digits: &[u8], xml: &mut Vec<u8>) {
    cell_start(letters, row, style, xml);
    xml.extend_from_slice(b"><v>");
    xml.extend_from_slice(digits);
    xml.extend_from_slice(b"</v></c>");
}

pub(super) fn boolean_cell(letters: &str, row: u64, value: bool, xml: &mut Vec<u8>) {
    cell_start(letters, row, Style::Plain, xml);
    let value: &[u8] = if value { b" t=\"b\"><v>1</v></c>" } else { b" t=\"b\"><v>0</v></c>" };
    xml.extend_from_slice(value);
}

pub(super) fn text_cell(letters: &str, row: u64, style: Style, text: &str, xml: &mut Vec<u8>) {
    cell_start(letters, row, style, xml);
    xml.extend_from_slice(b" t=\"inlineStr\"><is><t");
    if text.trim().len() != text.len() {
        xml.extend_from_slice(b" xml:space=\"preserve\"");
    }
    xml.push(b'>');
    escape(text, xml);
    xml.extend_from_slice(b"</t></is></c>");
}

/// A text as XML. Characters that XML cannot hold are written as `_x0001_`, and a text that
/// looks like such an escape has its underscore escaped (`ST_Xstring` of the standard).
fn escape(text: &str, xml: &mut Vec<u8>) {
    for (at, c) in text.char_indices() {
        match c {
            '&' => xml.extend_from_slice(b"&amp;"),
            '<' => xml.extend_from_slice(b"&lt;"),
            '>' => xml.extend_from_slice(b"&gt;"),
            // Bare, a reader would take it for a line feed.
            '\r' => xml.extend_from_slice(b"&#13;"),
            '_' if is_escape(&text.as_bytes()[at..]) => xml.extend_from_slice(b"_x005F_"),
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                write!(xml, "_x{:04X}_", u32::from(c)).expect("a buffer takes all");
            }
            _ => xml.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
}

fn is_escape(text: &[u8]) -> bool {
    matches!(text, [b'_', b'x', hex @ .., ] if hex.len() > 4 && hex[4] == b'_' && hex[..4].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_lettered_like_in_every_spreadsheet() {
        let named = [0, 25, 26, 51, 52, 199, 701, 702].map(letters);
        assert_eq!(named, ["A", "Z", "AA", "AZ", "BA", "GR", "ZZ", "AAA"]);
    }

    #[test]
    fn what_xml_cannot_hold_is_escaped_and_what_looks_like_it_too() {
        let escaped = |text: &str| {
            let mut xml = Vec::new();
            escape(text, &mut xml);
            String::from_utf8(xml).expect("UTF-8")
        };
        assert_eq!(escaped("a<b>&\"'é\n\t"), "a&lt;b&gt;&amp;\"'é\n\t");
        assert_eq!(escaped("\u{1}\u{b}\r\u{ffff}"), "_x0001__x000B_&#13;_xFFFF_");
        assert_eq!(escaped("_x0041_ _x41_ _"), "_x005F_x0041_ _x41_ _");
    }

    #[test]
    fn a_sheet_has_a_name_that_sheets_may_have() {
        assert_eq!(title("pedidos"), "pedidos");
        assert_eq!(title("a[1]'s"), "a1s");
        assert_eq!(title("History"), "Export");
        assert_eq!(title(&"x".repeat(40)).len(), 31);
    }
}
