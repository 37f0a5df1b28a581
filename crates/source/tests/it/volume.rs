//! Many rows in bounded batches; large rows up to a limit.

use outport_domain::{
    column::ColumnType::{Integer, Text},
    failure::FailureCode,
    selection::Selection,
};
use outport_source::{Batch, Next};

use crate::world::{World, numbers, on_every_engine, query, read};

fn series(world: &World, rows: u32, pad: u32) -> Selection {
    let postgres =
        format!("SELECT n, repeat('x', {pad}) AS pad FROM generate_series(1, {rows}) AS n");
    let mariadb = format!(
        "SELECT n, repeat('x', {pad}) AS pad FROM {} WHERE n <= {rows}",
        world.qualified("numbers")
    );
    let sqlite = format!(
        "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows}) \
         SELECT n, replace(hex(zeroblob({pad} / 2)), '0', 'x') AS pad FROM s"
    );
    query(world.pick(&postgres, &mariadb, &sqlite), &[("n", Integer), ("pad", Text)])
}

async fn prepare(world: &World) {
    world.run("CREATE TABLE numbers (n integer)").await;
    if world.is_mariadb() {
        world.run(&format!("INSERT INTO numbers SELECT seq FROM {}", numbers(300_000))).await;
    }
}

#[tokio::test]
async fn three_hundred_thousand_rows_come_in_bounded_batches() {
    on_every_engine(async |world| {
        prepare(world).await;
        let wanted = series(world, 300_000, 100);
        let mut stream = world.source().open(&wanted).await.expect("a stream");
        let mut batch = Batch::new(2);
        let (mut rows, mut batches, mut sum) = (0, 0, 0_u64);
        loop {
            match stream.next(&mut batch).await.expect("rows") {
                Next::Rows => {
                    assert!(batch.len_bytes() <= 1024 * 1024, "{} bytes", batch.len_bytes());
                    assert!(
                        batch.capacity_bytes() <= 1024 * 1024,
                        "{} held",
                        batch.capacity_bytes()
                    );
                    rows += batch.rows() as u64;
                    batches += 1;
                    let numbers = batch.cells().step_by(2).flatten();
                    sum += numbers
                        .map(|number| {
                            str::from_utf8(number)
                                .expect("digits")
                                .parse::<u64>()
                                .expect("a number")
                        })
                        .sum::<u64>();
                }
                Next::End { rows: counted } => {
                    assert_eq!(counted, rows);
                    break;
                }
            }
        }
        assert_eq!((rows, sum), (300_000, 300_000 * 300_001 / 2));
        assert!((50..1_000).contains(&batches), "{batches} batches");
    })
    .await;
}

#[tokio::test]
async fn a_row_larger_than_a_batch_is_read_and_one_beyond_the_limit_refused() {
    on_every_engine(async |world| {
        prepare(world).await;
        let rows = read(&world.source(), &series(world, 3, 2 * 1024 * 1024)).await.expect("rows");
        assert!(
            rows.iter().all(|row| row[1].as_ref().is_some_and(|pad| pad.len() == 2 * 1024 * 1024))
        );
        assert_eq!(rows.len(), 3);

        let Err(error) = read(&world.source(), &series(world, 1, 65 * 1024 * 1024)).await else {
            panic!("a row beyond the limit")
        };
        assert_eq!(error.code, FailureCode::ValueNotEncodable);
    })
    .await;
}
