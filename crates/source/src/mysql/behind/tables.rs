//! The tables that a statement names, by its words alone.

use std::collections::BTreeSet;

use super::words::{By, Token, tokens};

/// What may be a table: where it is, and its name.
pub(super) type Name = (Schema, String);

/// The schema of a name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Schema {
    /// The session's own.
    Default,
    /// The one of this name.
    Of(String),
    /// It is not known.
    Unknown,
}

/// What was found in statements.
#[derive(Default)]
pub(super) struct Found {
    pub(super) tables: BTreeSet<Name>,
    pub(super) ctes: BTreeSet<String>,
    /// Whether rows are locked, which reads them as they are now.
    pub(super) locks_rows: bool,
    /// Whether a text names its character set: where the server prints one, a backslash may be
    /// its last character.
    pub(super) has_foreign_texts: bool,
}

impl Found {
    /// Of a statement as the server prints it: each table is there with its schema, and nothing
    /// more, before it. Some other pairs are found, too, which are no tables.
    pub(super) fn by_server(&mut self, sql: &str) {
        let tokens = tokens(sql, By::Hand);
        let mut at = 0;
        while at < tokens.len() {
            let chain = chain(&tokens[at..]);
            if let [schema, name] = chain[..] {
                self.tables.insert((Schema::Of(schema.clone()), name.clone()));
            }
            at += (2 * chain.len()).max(2) - 1;
        }
    }

    /// Of a query as somebody wrote it: what stands where tables do, but for the names of CTEs
    /// where they are known.
    pub(super) fn in_query(&mut self, sql: &str) {
        self.where_tables_stand(&tokens(sql, By::Hand));
        // What a comment has for some servers, this one may pass over.
        let passed_over = sql.replace("/*!", "/*").replace("/*M!", "/*");
        if passed_over != sql {
            self.where_tables_stand(&tokens(&passed_over, By::Hand));
        }
    }

    /// Of a `SELECT` as the server traces it, without schemas.
    pub(super) fn in_trace(&mut self, sql: &str) {
        self.where_tables_stand(&tokens(sql, By::Server));
    }

    fn where_tables_stand(&mut self, tokens: &[Token]) {
        let mut levels = vec![Level::default()];
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            let level = levels.last_mut().expect("the outermost is never closed");
            let mut next = at + 1;
            match token {
                Token::Open => {
                    let coming = std::mem::take(&mut level.now);
                    levels.push(Level::in_brackets(coming));
                }
                Token::Close => {
                    if levels.len() > 1 {
                        levels.pop();
                    }
                    self.ctes.extend(levels.last_mut().and_then(Level::end_of_brackets));
                }
                Token::Comma => level.comma(),
                // What an index is for.
                Token::Word(word) if is(word, "FOR") && is_one(tokens.get(at + 1), &USES) => {
                    next = at + 2;
                }
                Token::Word(_) if locks_rows(tokens, at, level.is_select) => self.locks_rows = true,
                Token::ForeignText => self.has_foreign_texts = true,
                Token::Word(word) if level.take(word, tokens.get(at + 1)) => {}
                Token::Word(_) | Token::Quoted(_) => {
                    let chain = chain(&tokens[at..]);
                    next = at + 2 * chain.len() - 1;
                    if level.name(chain[0]) {
                        let is_cte = |name| levels.iter().any(|one| one.ctes.contains(name));
                        let is_none = is_one(Some(token), &["DUAL"])
                            || tokens.get(next) == Some(&Token::Open);
                        match chain[..] {
                            [name] if is_cte(name) => {}
                            // No table at all, or a function such as `JSON_TABLE(…)`.
                            [_] if is_none => {}
                            [name] => drop(self.tables.insert((Schema::Default, name.clone()))),
                            [schema, name, ..] => {
                                self.tables.insert((Schema::Of(schema.clone()), name.clone()));
                            }
                            [] => {}
                        }
                    }
                }
                Token::Dot | Token::Other => {}
            }
            at = next;
        }
    }
}

/// What a hint may say that an index is for.
const USES: [&str; 3] = ["JOIN", "ORDER", "GROUP"];

fn is(word: &str, other: &str) -> bool {
    word.eq_ignore_ascii_case(other)
}

/// Whether a token is one of these words.
fn is_one(token: Option<&Token>, words: &[&str]) -> bool {
    matches!(token, Some(Token::Word(next)) if words.iter().any(|word| is(next, word)))
}

/// Whether a clause that locks rows is there. A column may be called `share`, as in
/// `SUBSTRING(a FROM 1 FOR share)`, so a `SELECT` must be before it, or one in brackets.
fn locks_rows(tokens: &[Token], at: usize, is_select: bool) -> bool {
    let is_there =
        |clause: &[&str]| (at..).zip(clause).all(|(at, word)| is_one(tokens.get(at), &[word]));
    let is_after_select = is_select || tokens[..at].last() == Some(&Token::Close);
    is_there(&["LOCK", "IN", "SHARE", "MODE"])
        || is_there(&["FOR", "UPDATE"])
        || is_after_select && is_there(&["FOR", "SHARE"])
}

/// What is about to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Coming {
    #[default]
    Else,
    Table,
    /// The name of a CTE.
    Cte,
}

/// What is known within one pair of brackets.
#[derive(Default)]
struct Level {
    is_select: bool,
    now: Coming,
    /// Where a comma leads: to another table of the list, to another CTE.
    by_comma: Coming,
    is_recursive: bool,
    /// The CTE that is being defined, and whether its `AS` was there.
    defines: Option<(String, bool)>,
    /// The CTEs that are known here.
    ctes: Vec<String>,
}

impl Level {
    /// One of brackets where a table is to come.
    fn in_brackets(coming: Coming) -> Self {
        Self { now: coming, by_comma: coming, ..Self::default() }
    }

    /// Whether the word was one of the language.
    fn take(&mut self, word: &str, next: Option<&Token>) -> bool {
        let word = word.to_ascii_uppercase();
        match word.as_str() {
            "RECURSIVE" if self.now == Coming::Cte => self.is_recursive = true,
            _ if self.now == Coming::Cte => return false,
            "AS" => {
                if let Some((_, is_begun)) = &mut self.defines {
                    *is_begun = true;
                }
            }
            "WITH" if !is_one(next, &["ROLLUP", "TIES"]) => {
                let ctes = std::mem::take(&mut self.ctes);
                *self = Self { now: Coming::Cte, ctes, ..Self::default() };
            }
            // What says when a recursive CTE ends may name many columns.
            "CYCLE" if self.by_comma == Coming::Cte => self.by_comma = Coming::Else,
            "RESTRICT" if !self.is_select => self.by_comma = Coming::Cte,
            "SELECT" | "VALUES" => {
                (self.now, self.by_comma, self.is_select) = (Coming::Else, Coming::Else, true);
            }
            "FROM" if self.is_select => (self.now, self.by_comma) = (Coming::Table, Coming::Table),
            "JOIN" | "STRAIGHT_JOIN" if self.by_comma == Coming::Table => self.now = Coming::Table,
            "TABLE" if !self.is_select => self.now = Coming::Table,
            "LATERAL" if self.now == Coming::Table && next == Some(&Token::Open) => {}
            "WHERE" | "GROUP" | "HAVING" | "ORDER" | "LIMIT" => {
                (self.now, self.by_comma) = (Coming::Else, Coming::Else);
            }
            "WINDOW" if self.now == Coming::Else && next.is_some_and(|it| it.name().is_some()) => {
                self.by_comma = Coming::Else;
            }
            // A `TABLE` may follow.
            "UNION" | "EXCEPT" | "INTERSECT" => {
                (self.now, self.by_comma, self.is_select) = (Coming::Else, Coming::Else, false);
            }
            _ => return false,
        }
        true
    }

    fn comma(&mut self) {
        if self.by_comma != Coming::Else {
            self.now = self.by_comma;
        }
    }

    /// Whether a name stands where a table does.
    fn name(&mut self, name: &str) -> bool {
        let coming = std::mem::take(&mut self.now);
        if coming == Coming::Cte {
            // One that is not recursive may read a table of its own name.
            if self.is_recursive {
                self.ctes.push(name.to_owned());
            }
            self.defines = Some((name.to_owned(), false));
        }
        coming == Coming::Table
    }

    /// The CTE that ends here.
    fn end_of_brackets(&mut self) -> Option<String> {
        let (name, _) = self.defines.take_if(|(_, is_begun)| *is_begun)?;
        self.ctes.push(name.clone());
        self.by_comma = Coming::Cte;
        Some(name)
    }
}

/// The names that `tokens` begin with, with dots between them.
fn chain(tokens: &[Token]) -> Vec<&String> {
    let mut names = Vec::new();
    let mut rest = tokens;
    while let Some(name) = rest.first().and_then(Token::name) {
        names.push(name);
        match rest {
            [_, Token::Dot, after @ ..] if after.first().and_then(Token::name).is_some() => {
                rest = after;
            }
            _ => break,
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::{Found, Schema};

    fn shown(find: fn(&mut Found, &str), sql: &str) -> String {
        let mut found = Found::default();
        find(&mut found, sql);
        let shown = found.tables.into_iter().map(|(schema, name)| match schema {
            Schema::Of(schema) => format!("{schema}.{name}"),
            Schema::Default | Schema::Unknown => name,
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn tables_are_found_in_what_the_server_made_of_a_statement() {
        let sql = "select `s`.`t`.`id` AS `id`,`q`.`l` AS `l`,`s`.`q`.`m` from `s`.`t` \
                   join `s 2`.`a``b` `q` where `s`.`t`.`id` = `q`.`id`";
        assert_eq!(shown(Found::by_server, sql), "q.id q.l s.t s 2.a`b");
    }

    #[test]
    fn a_quote_in_a_text_or_comment_hides_no_table() {
        for hiding in [
            "'`'",
            "'it''s `'",
            r"'it\'s `'",
            r"'\\'",
            r#""`'""#,
            "1 -- `'\n",
            "1 # '\n",
            "/* '` */ 1",
        ] {
            let sql = format!(
                "select 1 from `s`.`t` where ({hiding} <> 1) or 1 in (select 1 from `s`.`u`)"
            );
            assert_eq!(shown(Found::by_server, &sql), "s.t s.u", "{hiding}");
            assert_eq!(shown(Found::in_query, &sql), "s.t s.u", "{hiding}");
        }
    }

    #[test]
    fn tables_are_found_in_a_query() {
        for (sql, expected) in [
            ("SELECT m.id, 'x' AS note FROM o m, s . `t 2` AS h, (a CROSS JOIN b)", "a b o s.t 2"),
            ("SELECT 1 id UNION ALL SELECT n FROM t LEFT JOIN u USING (id, m), v", "t u v"),
            (
                "SELECT STRAIGHT_JOIN a, b FROM t STRAIGHT_JOIN u ON f(t.a, u.b), w WHERE c, d",
                "t u w",
            ),
            (
                "SELECT EXTRACT(DAY FROM d), TRIM(BOTH 'x' FROM e), t.from, x FROM t GROUP BY f, g WITH ROLLUP",
                "t",
            ),
            (
                "SELECT (SELECT max(id) FROM a), b FROM t WHERE EXISTS (SELECT 1 FROM (SELECT 1 FROM c) d)",
                "a c t",
            ),
            (
                "WITH m AS (SELECT * FROM o), n (x, y) AS (SELECT 1, 2 FROM m) SELECT * FROM m JOIN n",
                "o",
            ),
            ("WITH m AS (SELECT DISTINCT id FROM m) SELECT * FROM m", "m"),
            (
                "WITH RECURSIVE r AS (SELECT 1 FROM a UNION ALL SELECT 2 FROM r JOIN b) SELECT * FROM r",
                "a b",
            ),
            ("SELECT * FROM (WITH c AS (SELECT 1 FROM a) SELECT * FROM c) d JOIN c", "a c"),
            (
                "WITH c AS (SELECT 1 FROM a) SELECT * FROM s.c, (SELECT 1 FROM c WHERE (x, y)) e",
                "a s.c",
            ),
            ("TABLE t ORDER BY id", "t"),
            (
                "SELECT 1 FROM t PARTITION (p0, p1) FORCE INDEX (i, j), LATERAL (SELECT 1 FROM u) l, v",
                "t u v",
            ),
            ("SELECT 1 /*! FROM t */", "t"),
            ("SELECT 1 FROM t FOR SYSTEM_TIME ALL, u", "t u"),
            ("SELECT id, 100. FROM t JOIN u ON t.n > 0. JOIN s.1 WHERE 1.5 > .5", "t u s.1"),
            (
                "SELECT 1 FROM t USE INDEX FOR ORDER BY (i) JOIN u FORCE KEY FOR JOIN (j), v IGNORE INDEX FOR GROUP BY (k), w",
                "t u v w",
            ),
            ("SELECT (SELECT 1e0FROM t), 1.5e-3FROM u WHERE .5e1 > (SELECT .5FROM v)", "t u v"),
            ("SELECT 1 FROM a.1e5, 2e5, t.5x", "a.1e5 t.5x"),
            (
                "WITH RECURSIVE c AS (SELECT 1 FROM o UNION ALL SELECT 2 FROM c) CYCLE a, b RESTRICT, \
                 d AS (SELECT 1 FROM b) SELECT 1 FROM c, d WHERE (SELECT max(id) FROM a) > 0",
                "a b o",
            ),
            (
                "SELECT rank() OVER w FROM t WINDOW e AS (ORDER BY id), w AS (ORDER BY n), b AS (ORDER BY 1)",
                "t",
            ),
            ("SELECT 1 FROM t window, u", "t u"),
            ("SELECT 1 FROM { OJ t LEFT JOIN u ON t.id = @group OR @@where }, v", "t u v"),
            (
                "select 1 from <constant table> join `t` semi join (`u`) join dual, `dual`",
                "dual t u",
            ),
            ("SELECT a FROM JSON_TABLE('[1]', '$[*]' COLUMNS (a int PATH '$')) j, t", "t"),
            ("SELECT id + @a.union FROM t JOIN u ON @@session.from = @`x`.v", "t u"),
            ("WITH c AS (SELECT 1 /*!999999 ' */ FROM m /*!999999 ' */) SELECT 1 FROM c", "m"),
            ("SELECT 1 FROM lateral l JOIN \u{a0}t --\u{1} WHERE '\n JOIN u", "lateral u \u{a0}t"),
        ] {
            assert_eq!(shown(Found::in_query, sql), expected, "{sql}");
        }
    }

    #[test]
    fn names_that_begin_as_numbers_do_are_whole_where_the_server_prints_them() {
        let sql = "select 1e0.id,1.5e-3,.5 from (5e8_o join 1e0 on 5e8_o.id > 1e0) where 2e0 > 1";
        assert_eq!(shown(Found::in_trace, sql), "1e0 5e8_o");
    }

    #[test]
    fn what_locks_rows_is_noticed() {
        for (sql, locks) in [
            ("SELECT 1 FROM t LOCK IN SHARE MODE", true),
            ("SELECT 1 FROM (SELECT 1 FROM t WHERE 1 lock in /**/ share mode) x", true),
            ("SELECT 1 FROM t FOR UPDATE", true),
            ("SELECT 1 FROM ((SELECT 1 FROM t) LOCK IN SHARE MODE) x", true),
            ("SELECT 1 FROM ((SELECT 1 FROM t) FOR SHARE) x", true),
            ("SELECT 1 FROM t ORDER BY 1 LIMIT 2 FOR SHARE OF t", true),
            ("SELECT `lock`, 'for update', SUBSTRING(a FROM 1 FOR share) FROM t", false),
            ("SELECT 1 FROM t FOR SYSTEM_TIME ALL USE INDEX FOR JOIN (update)", false),
        ] {
            let mut found = Found::default();
            found.in_query(sql);
            assert_eq!(found.locks_rows, locks, "{sql}");
        }
    }
}
