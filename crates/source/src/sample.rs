//! The sample shop of `outport demo`: an SQLite file with orders whose texts are as hard as real
//! ones. The one place in this crate that writes, and only into a file that it creates.

use std::path::Path;

use outport_domain::id::{CompanyId, OrganizationId};

/// Orders of the sample shop, over all organizations and days.
pub const ORDERS: u32 = 6_000;

const SCHEMA: &str = "
    CREATE TABLE orders (
      id INTEGER PRIMARY KEY,
      code TEXT NOT NULL UNIQUE,
      status TEXT NOT NULL,
      total_amount TEXT NOT NULL,
      created_at TEXT NOT NULL,
      customer_name TEXT NOT NULL,
      note TEXT,
      organization_id TEXT NOT NULL,
      company_id TEXT NOT NULL,
      deleted_at TEXT
    );
    CREATE INDEX orders_by_company ON orders (organization_id, company_id, created_at);
";

const CUSTOMERS: [&str; 12] = [
    "Ana Conceição",
    "José \"Zé\" Núñez",
    "O'Brien & Sons, Ltd.",
    "Müller GmbH\nAbteilung Einkauf",
    "Łukasz Żółć, Kraków",
    "株式会社サンプル",
    "=HYPERLINK(\"http://example.com\";\"click\")",
    "Bruno Álvares",
    "Émilie Crème",
    "@carla",
    "Σοφία Παπαδοπούλου",
    "Smith; John | Jr.",
];

const NOTES: [Option<&str>; 10] = [
    None,
    Some(""),
    Some("Leave at reception, thanks"),
    Some("Said \"rush\", twice"),
    Some("First line\nSecond line, with comma\r\nThird after CRLF"),
    Some("+1 (555) 010-9999"),
    Some("-5"),
    Some("=1+1"),
    Some("  spaces around  "),
    Some("emoji 🚚 and a tab\there"),
];

const STATUSES: [&str; 5] = ["draft", "pending", "paid", "shipped", "cancelled"];

/// Creates the shop in a new file. The companies take turns, the last one of another
/// organization, so that a correct export leaves rows out on every side.
pub fn create_shop(
    path: &Path,
    organization: OrganizationId,
    company: CompanyId,
) -> Result<(), rusqlite::Error> {
    let mut connection = rusqlite::Connection::open(path)?;
    connection.execute_batch("PRAGMA journal_mode = WAL;")?;
    connection.execute_batch(SCHEMA)?;
    let owners = [
        (organization, company),
        (organization, company),
        (organization, CompanyId::new()),
        (OrganizationId::new(), CompanyId::new()),
    ];
    let transaction = connection.transaction()?;
    {
        let mut insert = transaction.prepare(
            "INSERT INTO orders (code, status, total_amount, created_at, customer_name, note,
               organization_id, company_id, deleted_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        for number in 0..ORDERS {
            let (organization, company) = owners[number as usize % owners.len()];
            // Ten days from 2026-06-28 on, a fixed number of orders each.
            let second = u64::from(number) * 10 * 86_400 / u64::from(ORDERS);
            let instant =
                chrono::DateTime::from_timestamp(1_782_604_800 + second as i64, 123_000_000);
            let created_at =
                instant.unwrap_or_default().format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
            let cents = u64::from(number) * 7_919 % 10_000_000;
            insert.execute(rusqlite::params![
                format!("ORD-{number:06}"),
                STATUSES[number as usize / 3 % STATUSES.len()],
                format!("{}.{:02}", cents / 100, cents % 100),
                created_at,
                CUSTOMERS[number as usize / 4 % CUSTOMERS.len()],
                NOTES[number as usize / 4 % NOTES.len()],
                organization.to_string(),
                company.to_string(),
                (number % 97 == 0).then_some("2026-07-08T00:00:00.000Z"),
            ])?;
        }
    }
    transaction.commit()
}
