//! What is taken out of JSON by the names of its members, and what stays.

use outport_contract::redaction::redact_members;
use serde_json::value::RawValue;

fn members(text: &str, plain: &[&str]) -> String {
    let data = RawValue::from_string(text.to_owned()).expect("JSON");
    redact_members(&data, plain, usize::MAX).expect("no limit").get().to_owned()
}

#[test]
fn texts_are_redacted_and_nothing_else_changes() {
    for text in [
        r#"{"a":1.10,"b":[true,null,"plain"],"c":{"d":"é\n\"q\""}}"#,
        r#"{"big":12345678901234567890.50,"e":" "}"#,
        "[]",
        r#"{"tokens":1500,"keys":["a"],"idempotencyKey":"a","cursor":"b","title":"Hello \"you\""}"#,
        r#"{"password":null,"token":true,"secret":""}"#,
        r#"{"accessKeywords":["a"],"clientKeyword":"b","adminKeyboard":"c"}"#,
        r#"{"tokEnd":1,"secRetries":"a","chosenHandler":"b","compassRate":2,"bypassCode":"c"}"#,
        r#"{"tokens":{"input":1500,"by":{"a":2}},"tokens_used":12,"cookies":3,"secrets":4}"#,
    ] {
        assert_eq!(members(text, &[]), text);
    }
    assert_eq!(members("{ \"a\" :\r\n[ 1 ,\t\"b c\" ] }", &[]), r#"{"a":[1,"b c"]}"#);
    assert_eq!(
        members(
            r#"{"url":"x\\","note":"at postgres://u:p@h/db now","10.0.0.1":"10.0.0.1:5432"}"#,
            &[]
        ),
        r#"{"url":"x\\","note":"at [redacted] now","10.0.0.1":"[redacted]"}"#
    );
}

#[test]
fn a_member_with_the_name_of_a_secret_has_its_value_replaced() {
    for (text, expected) in [
        (r#"{"password":"a b","n":1}"#, r#"{"password":"[redacted]","n":1}"#),
        (r#"{"pass\u0077ord":"a"}"#, r#"{"pass\u0077ord":"[redacted]"}"#),
        (r#"{"api_key":-1.5e3,"n":2}"#, r#"{"api_key":"[redacted]","n":2}"#),
        (
            r#"{"token":["a",{"b":7,"c":null}],"d":"e"}"#,
            r#"{"token":["[redacted]",{"b":"[redacted]","c":null}],"d":"e"}"#,
        ),
        (
            r#"{"headers":{"X-Api-Key":"a","Authorization":"Basic b","Accept":"c"}}"#,
            r#"{"headers":{"X-Api-Key":"[redacted]","Authorization":"[redacted]","Accept":"c"}}"#,
        ),
        (
            r#"{"dbpass1":"a","passkey":"b","contraseña":"c","APP_ENC_KEY":"d","pass":"e"}"#,
            r#"{"dbpass1":"[redacted]","passkey":"[redacted]","contraseña":"[redacted]","APP_ENC_KEY":"[redacted]","pass":"[redacted]"}"#,
        ),
        (
            r#"{"tokens":{"a":"b","password":1},"cookies":1234,"OUTPORT_OLD_ENC_KEYS":["c"]}"#,
            r#"{"tokens":{"a":"[redacted]","password":"[redacted]"},"cookies":"[redacted]","OUTPORT_OLD_ENC_KEYS":["[redacted]"]}"#,
        ),
        ("{\"contrasen\u{303}a\":\"a\"}", "{\"contrasen\u{303}a\":\"[redacted]\"}"),
        (
            r#"{"PASSwORD":"a","dbpASSWORD2":"b","pAsSwD":"c","tOKEN":"d","aUTHORIZATION":"e"}"#,
            r#"{"PASSwORD":"[redacted]","dbpASSWORD2":"[redacted]","pAsSwD":"[redacted]","tOKEN":"[redacted]","aUTHORIZATION":"[redacted]"}"#,
        ),
        (r#"[{"cookie":"a"},{"b":"c"}]"#, r#"[{"cookie":"[redacted]"},{"b":"c"}]"#),
    ] {
        assert_eq!(members(text, &[]), expected);
        assert_eq!(members(expected, &[]), expected, "a second time changes nothing");
    }
}

#[test]
fn members_of_the_catalogue_stay_and_only_where_it_has_them() {
    let text = r#"{"key":"sha-1","a":{"key":"b"},"password":"c"}"#;
    let expected = r#"{"key":"sha-1","a":{"key":"[redacted]"},"password":"[redacted]"}"#;
    assert_eq!(members(text, &["key"]), expected);
}

#[test]
fn a_block_of_pem_told_in_lines_is_taken_out_to_its_end() {
    for (text, expected) in [
        (
            r#"{"lines":["a","-----BEGIN KEY-----","b","c\n-----END KEY-----","d"],"e":"f"}"#,
            r#"{"lines":["a","[redacted]","[redacted]","[redacted]","d"],"e":"f"}"#,
        ),
        (
            r#"{"lines":[{"m":"x -----BEGIN A-----","l":"info"},{"m":"b","l":"info"}],"e":"f"}"#,
            r#"{"lines":[{"m":"x [redacted]","l":"info"},{"m":"[redacted]","l":"info"}],"e":"f"}"#,
        ),
        (
            r#"["-----BEGIN A-----","x","-----END A-----\n-----BEGIN B-----","y","-----END B-----","z"]"#,
            r#"["[redacted]","[redacted]","[redacted]","[redacted]","[redacted]","z"]"#,
        ),
        (
            r#"["-----BEGIN A-----\nx\n-----END A-----\n-----BEGIN B-----","y","-----END B-----"]"#,
            r#"["[redacted]\n[redacted]","[redacted]","[redacted]"]"#,
        ),
        (
            r#"{"a":[["1","-----BEGIN A-----"],["2","b"],["3","-----END A-----"],["4","c"]]}"#,
            r#"{"a":[["1","[redacted]"],["[redacted]","[redacted]"],["[redacted]","[redacted]"],["4","c"]]}"#,
        ),
        (r#"{"a":"-----BEGIN A-----","b":"c"}"#, r#"{"a":"[redacted]","b":"c"}"#),
    ] {
        assert_eq!(members(text, &[]), expected);
    }
}

/// The work grows with the length: what is quadratic in it would not end within a test's time.
#[test]
fn a_long_name_is_judged_once_for_all_of_its_elements() {
    let name = "a".repeat(512 * 1024);
    for element in ["1", "{}", "[]", "\"b\"", "{\"b\":1}"] {
        let elements = vec![element; 100_000].join(",");
        let text = format!("{{\"{name}\":[{elements}]}}");
        assert!(members(&text, &[]) == text, "elements {element}");
    }
}

#[test]
fn more_than_may_be_left_is_not_looked_at_to_its_end() {
    let secret = "s".repeat(100);
    for (text, most, is_left) in [
        (r#"{"a":"b"}"#.to_owned(), 9, true),
        (r#"{ "a" : "b" }"#.to_owned(), 9, true),
        (r#"{"a":"bc"}"#.to_owned(), 9, false),
        (format!(r#"{{"token":"{secret}"}}"#), 56, true),
        (format!(r#"{{"token":"{secret}"}}"#), 55, false),
        (format!(r#"{{"token":"{}{secret}"}}"#, "\\u0041"), 56, false),
    ] {
        let data = RawValue::from_string(text.clone()).expect("JSON");
        assert_eq!(redact_members(&data, &[], most).is_some(), is_left, "{most} of {text}");
    }
}
