//! Which letters `ignoreCase` takes for the same, on every engine.

use outport_domain::{
    column::ColumnType::{Integer, Text},
    selection::{Place, Predicate, Test},
};

use crate::world::{World, column, on_every_engine, ordered, read_first, selection};

/// Pairs that every engine folds: of Latin, Greek, Cyrillic and Armenian, the long S of German, the
/// dotted I of Turkish, digraphs, numerals, wide letters, signs, and letters beyond the first plane.
const FOLDED: [(&str, &str); 22] = [
    ("A", "a"),
    ("É", "é"),
    ("Ÿ", "ÿ"),
    ("Ł", "ł"),
    ("Ș", "ș"),
    ("Ⱥ", "ⱥ"),
    ("Ế", "ế"),
    ("Σ", "σ"),
    ("Ώ", "ώ"),
    ("Ϗ", "ϗ"),
    ("Я", "я"),
    ("Ѐ", "ѐ"),
    ("Ӷ", "ӷ"),
    ("Ա", "ա"),
    ("ẞ", "ß"),
    ("İ", "i"),
    ("ǅ", "ǆ"),
    ("Ⅷ", "ⅷ"),
    ("Ａ", "ａ"),
    ("\u{212a}", "k"),
    ("\u{2126}", "ω"),
    ("𐐀", "𐐨"),
];

/// Pairs that PostgreSQL and SQLite fold and MySQL does not: its letters are those of Unicode 5.2.
const NEWER: [(&str, &str); 4] = [("Ꭰ", "ꭰ"), ("Ა", "ა"), ("Ꞑ", "ꞑ"), ("Ԧ", "ԧ")];

/// Pairs that no engine folds: letter by letter, they are not each other's case.
const APART: [(&str, &str); 5] = [("Σ", "ς"), ("SS", "ß"), ("É", "e"), ("I", "ı"), ("ﬁ", "fi")];

async fn finds(world: &World, pair: (&str, &str)) -> bool {
    let mut wanted = ordered(selection(world.table("t"), &[("id", Integer)]), "id");
    wanted.predicate = Predicate::Column {
        column: column("c", Text),
        test: Test::Like { place: Place::Anywhere, text: pair.1.to_owned(), ignore_case: true },
        negated: false,
    };
    world.run(&format!("DELETE FROM t; INSERT INTO t VALUES (1, 'x{}x')", pair.0)).await;
    let down = !read_first(world, &wanted).await.is_empty();
    if let Predicate::Column { test: Test::Like { text, .. }, .. } = &mut wanted.predicate {
        pair.0.clone_into(text);
    }
    world.run(&format!("DELETE FROM t; INSERT INTO t VALUES (1, 'x{}x')", pair.1)).await;
    let up = !read_first(world, &wanted).await.is_empty();
    assert_eq!(down, up, "{pair:?}");
    down
}

#[tokio::test]
async fn letters_are_folded_one_by_one_and_alike() {
    on_every_engine(async |world| {
        let engine = world.pick("PostgreSQL", "MariaDB", "SQLite");
        world.run("CREATE TABLE t (id integer, c text)").await;
        for pair in FOLDED {
            assert!(finds(world, pair).await, "{engine} {pair:?}");
        }
        for pair in NEWER {
            assert_eq!(finds(world, pair).await, !world.is_mariadb(), "{engine} {pair:?}");
        }
        for pair in APART {
            assert!(!finds(world, pair).await, "{engine} {pair:?}");
        }
    })
    .await;
}
