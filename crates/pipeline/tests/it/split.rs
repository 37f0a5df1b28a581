//! Rule 23: numbered files, where they end, and the manifest that lists them.

use outport_contract::{digest::Sha256Digest, manifest::Manifest};
use outport_domain::{
    caller::Caller,
    crash::CrashPlan,
    failure::FailureCode,
    id::JobId,
    limits::fixed,
    locale::Locale,
    spec::{self, ExportSpec, RequestContext},
};
use outport_store::{jobs::Finished, parts};
use serde_json::{Value, json};

use crate::{
    file::read_back,
    runs::{assert_failed, no_retries},
    world::{Act, World},
};

const MIB: usize = 1024 * 1024;

/// A world that requests this beside its resource.
async fn world(members: &Value) -> World {
    let mut world = World::with(CrashPlan::none(), no_retries).await;
    request(&mut world, members);
    world
}

fn request(world: &mut World, members: &Value) {
    world.body = members.clone();
    world.body["resource"] = json!("order");
}

/// A completed split export: what its manifest says, and the bytes of its files. All that must
/// hold of any is checked.
async fn completed(world: &World) -> (JobId, Manifest, Vec<Vec<u8>>) {
    let (id, finished) = world.export().await;
    assert!(matches!(finished, Finished::Completed(_)), "{finished:?}");
    let job = world.job(id).await;
    let file = job.file.clone().expect("a file");
    let text = world.stored(id).await;
    let manifest: Manifest = serde_json::from_slice(&text).expect("a manifest");
    assert!(job.split);
    assert_eq!(job.content_type(), "application/json");
    assert_eq!(file.sha256, Sha256Digest::of(&text).hex());
    assert_eq!(file.stored_bytes, text.len() as u64);
    assert_eq!((file.size_bytes, file.total_rows), (manifest.size_bytes, manifest.total_rows));
    assert_eq!(manifest.version, 1);
    assert_eq!(manifest.export_job_id, id.uuid());
    assert_eq!(manifest.columns, ["code", "note"]);
    assert_eq!(
        manifest.snapshot_at.text(),
        outport_contract::time::Instant(file.snapshot_at).text()
    );
    assert_eq!(manifest.total_rows, manifest.files.iter().map(|file| file.rows).sum::<u64>());
    assert_eq!(manifest.size_bytes, manifest.files.iter().map(|file| file.size_bytes).sum::<u64>());
    let parts = parts::of_file(&world.pipeline.store, &job).await.expect("read");
    assert_eq!(parts.len(), manifest.files.len());
    let mut keys = vec![file.key.to_string()];
    let mut files = Vec::new();
    for (index, (listed, part)) in manifest.files.iter().zip(&parts).enumerate() {
        assert_eq!((listed.number, part.number), (index as u32 + 1, index as u32 + 1));
        assert_eq!((&*listed.key, listed.rows), (part.key.as_str(), part.rows));
        assert_eq!((listed.size_bytes, &listed.sha256), (part.size_bytes, &part.sha256));
        let bytes = world.memory.bytes(&listed.key).expect("the file").to_vec();
        assert_eq!(bytes.len() as u64, listed.size_bytes);
        assert_eq!(Sha256Digest::of(&bytes).hex(), listed.sha256);
        keys.push(listed.key.clone());
        files.push(bytes);
    }
    keys.sort();
    assert_eq!(world.memory.keys(), keys, "nothing but the manifest and what it lists");
    assert!(world.memory.open_uploads().is_empty());
    assert_eq!(world.events(id).await, ["export.completed", "job.completed"]);
    (id, manifest, files)
}

/// The request as the worker reads it.
fn spec_of(world: &World) -> ExportSpec {
    let caller: &Caller = &world.caller;
    let context = RequestContext {
        caller,
        locale: Locale::En,
        requested_at: chrono::Utc::now(),
        resolved_filters: None,
    };
    spec::parse(&world.body.to_string(), &world.pipeline.catalogue, context).expect("valid")
}

#[tokio::test]
async fn rows_become_numbered_files_each_whole_and_a_manifest_that_lists_them() {
    let csv = json!({"bom": true});
    let members = json!({"maxRowsPerFile": 2, "csv": csv, "fileName": "Março.csv"});
    let world = world(&members).await;
    world.source.plays([Act::Rows(5), Act::End(5)]);
    let (id, manifest, files) = completed(&world).await;
    let texts: Vec<_> = files.iter().map(|file| String::from_utf8_lossy(file)).collect();
    assert_eq!(
        texts,
        [
            "\u{feff}code,note\nORD-0,a note\nORD-1,a note\n",
            "\u{feff}code,note\nORD-2,a note\nORD-3,a note\n",
            "\u{feff}code,note\nORD-4,a note\n",
        ]
    );
    let names: Vec<_> = manifest.files.iter().map(|file| &*file.name).collect();
    assert_eq!(names, ["Março-0001.csv", "Março-0002.csv", "Março-0003.csv"]);
    assert_eq!(manifest.files[2].key, format!("data-transfer/exports/{id}/orders-0003.csv"));
    assert_eq!((&*manifest.format, &*manifest.content_type), ("CSV", "text/csv"));
    let key = world.job(id).await.file.expect("a file").key;
    assert_eq!(key.as_str(), format!("data-transfer/exports/{id}/orders.manifest.json"));
}

#[tokio::test]
async fn files_end_after_so_many_rows_whatever_the_batches_are() {
    for batches in [vec![1; 12], vec![12], vec![5, 7], vec![3, 0, 6, 3], vec![2, 9, 1]] {
        for most in [1, 3, 4, 5, 12, 13] {
            let world = world(&json!({"maxRowsPerFile": most, "format": "NDJSON"})).await;
            let mut next = 0..12;
            let rows = batches.iter().map(|rows| {
                let row = |number| [format!("ORD-{number}"), "x".repeat(number)];
                Act::Cells(next.by_ref().take(*rows).map(row).collect())
            });
            let acts: Vec<Act> = rows.chain([Act::End(12)]).collect();
            world.source.plays(acts);
            let (_, manifest, files) = completed(&world).await;
            let counts: Vec<u64> = manifest.files.iter().map(|file| file.rows).collect();
            let full = vec![most; 12 / most as usize];
            let rest = (12 % most > 0).then_some(12 % most);
            assert_eq!(counts, [full, rest.into_iter().collect()].concat(), "{batches:?}");
            let all = String::from_utf8(files.concat()).expect("UTF-8");
            let expected = (0..12).map(|number| {
                format!("{{\"code\":\"ORD-{number}\",\"note\":\"{}\"}}\n", "x".repeat(number))
            });
            assert_eq!(all, expected.collect::<String>(), "{batches:?} in files of {most}");
        }
    }
}

#[tokio::test]
async fn without_rows_there_is_one_file_and_a_manifest() {
    for (members, file) in [
        (json!({"maxRowsPerFile": 10}), "code,note\n"),
        (json!({"maxBytesPerFile": MIB, "format": "JSON"}), "[]\n"),
    ] {
        let world = world(&members).await;
        world.source.plays([Act::End(0)]);
        let (_, manifest, files) = completed(&world).await;
        assert_eq!(manifest.files[0].rows, 0);
        assert_eq!(files, [file.as_bytes()]);
    }
}

/// Texts of all lengths up to a limit, of these characters, always the same.
fn texts(characters: &str, most: usize, bytes: usize) -> Vec<String> {
    let characters: Vec<char> = characters.chars().collect();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as usize
    };
    let mut all = Vec::new();
    let mut left = bytes;
    while left > 0 {
        let length = random() % most;
        let text: String = (0..length).map(|_| characters[random() % characters.len()]).collect();
        left = left.saturating_sub(text.len() + 1);
        all.push(text);
    }
    all
}

/// These notes in batches of some rows.
fn plays(world: &World, notes: &[String]) {
    let mut number = 0;
    let rows = |notes: &[String]| {
        let row = |note: &String| {
            number += 1;
            [format!("ORD-{number}"), note.clone()]
        };
        Act::Cells(notes.iter().map(row).collect())
    };
    let acts: Vec<Act> = notes.chunks(777).map(rows).collect();
    world.source.plays(acts.into_iter().chain([Act::End(notes.len() as u64)]));
}

const HARD: &str = "abcdefghijklmnopqrstuvwxyz0123456789&<>\",;'é日本語🙂 \\";

#[tokio::test]
async fn a_file_takes_rows_as_long_as_its_bytes_allow() {
    let notes = texts(HARD, 3_000, 5 * MIB);
    for (format, behind) in [("CSV", 1), ("NDJSON", 1), ("JSON", 2)] {
        let world = world(&json!({"maxBytesPerFile": MIB, "format": format})).await;
        plays(&world, &notes);
        let (_, manifest, files) = completed(&world).await;
        assert_eq!(manifest.total_rows, notes.len() as u64);
        assert!(files.len() > 4, "{}", files.len());
        let texts: Vec<_> =
            files.iter().map(|file| std::str::from_utf8(file).expect("UTF-8")).collect();
        for (file, next) in texts.iter().zip(&texts[1..]) {
            assert!(file.len() <= MIB, "{format}: {}", file.len());
            let first = next.lines().nth(usize::from(format != "NDJSON")).expect("a row");
            let row = first.trim_end_matches(',').len() + behind;
            assert!(file.len() + row > MIB, "{format}: {} and {row} would have fit", file.len());
        }
        let spec = spec_of(&world);
        let read = files.iter().flat_map(|file| read_back(&spec, file).rows);
        let read: Vec<String> =
            read.map(|row| row[1].trim_start_matches("str:").to_owned()).collect();
        assert!(read == notes, "{format}: other rows than were there");
    }
}

#[tokio::test]
async fn files_that_are_compressed_stay_below_their_bytes() {
    for (format, compression) in
        [("CSV", "gzip"), ("JSON", "zstd"), ("XLSX", "none"), ("PARQUET", "none")]
    {
        let cases = [
            (HARD, 3_000, 3 * MIB / 2),
            ("&<>", 8, MIB / 3),
            ("\u{4e00}\u{4e01}\u{9fa5}", 90_000, 3 * MIB / 2),
        ];
        for (characters, most, bytes) in cases {
            let most = if format == "XLSX" { most.min(30_000) } else { most };
            let notes = texts(characters, most, bytes);
            let members = json!({
                "maxBytesPerFile": MIB, "format": format, "compression": compression,
            });
            let world = world(&members).await;
            plays(&world, &notes);
            let (_, manifest, files) = completed(&world).await;
            assert!(files.len() > 1, "{format}: {}", files.len());
            let spec = spec_of(&world);
            let mut read = Vec::new();
            for (file, listed) in files.iter().zip(&manifest.files) {
                assert!(file.len() <= MIB || listed.rows == 1, "{format}: {}", file.len());
                let seen = read_back(&spec, file);
                assert_eq!(seen.rows.len() as u64, listed.rows);
                read.extend(seen.rows.into_iter().map(|row| row[1].replacen("str:", "", 1)));
            }
            assert!(read == notes, "{format} {compression}: other rows than were there");
        }
    }
}

#[tokio::test]
async fn a_row_that_is_larger_than_a_file_may_be_has_a_file_of_its_own() {
    let world = world(&json!({"maxBytesPerFile": MIB, "maxRowsPerFile": 3})).await;
    let wide = |bytes| ["wide".to_owned(), "x".repeat(bytes)];
    let small = || wide(5);
    let rows = [small(), wide(3 * MIB), wide(MIB), small(), small(), small(), small()];
    world.source.plays([Act::Cells(rows.to_vec()), Act::End(7)]);
    let (_, manifest, files) = completed(&world).await;
    let counts: Vec<u64> = manifest.files.iter().map(|file| file.rows).collect();
    assert_eq!(counts, [1, 1, 1, 3, 1]);
    assert_eq!(files[1].len(), "code,note\nwide,\n".len() + 3 * MIB);
}

#[tokio::test]
async fn a_file_ends_exactly_at_its_bytes() {
    for (over, expected) in [(0, vec![2, 1]), (1, vec![1, 2])] {
        let world = world(&json!({"maxBytesPerFile": MIB})).await;
        let frame = "code,note\n".len() + 2 * "wide,\n".len();
        let row = |bytes| ["wide".to_owned(), "x".repeat(bytes)];
        let rows = [row(MIB / 2), row(MIB - MIB / 2 - frame + over), row(10)];
        world.source.plays([Act::Cells(rows.to_vec()), Act::End(3)]);
        let (_, manifest, files) = completed(&world).await;
        let counts: Vec<u64> = manifest.files.iter().map(|file| file.rows).collect();
        assert_eq!(counts, expected);
        assert!(over == 1 || files[0].len() == MIB);
    }
}

#[tokio::test]
async fn a_workbook_also_ends_where_its_sheet_is_full() {
    let split = async |members: Value| spec_of(&world(&members).await).split.expect("a split");
    let by_bytes = split(json!({"maxBytesPerFile": MIB, "format": "XLSX"})).await;
    assert_eq!((by_bytes.rows, by_bytes.bytes), (Some(fixed::SHEET_ROWS), Some(MIB as u64)));
    let by_rows = split(json!({"maxRowsPerFile": 7, "format": "XLSX"})).await;
    assert_eq!((by_rows.rows, by_rows.bytes), (Some(7), None));
    let other = split(json!({"maxBytesPerFile": MIB, "format": "PARQUET"})).await;
    assert_eq!(other.rows, None);
}

#[tokio::test]
async fn more_rows_than_a_sheet_holds_are_several_workbooks() {
    let world = world(&json!({"maxBytesPerFile": 4_000_000_000_u64, "format": "XLSX"})).await;
    let rows = std::iter::repeat_n(Act::Rows(10_000), 120);
    world.source.plays(rows.chain([Act::End(1_200_000)]));
    let (_, manifest, _) = completed(&world).await;
    let counts: Vec<u64> = manifest.files.iter().map(|file| file.rows).collect();
    assert_eq!(counts, [fixed::SHEET_ROWS, 1_200_000 - fixed::SHEET_ROWS]);
}

#[tokio::test]
async fn large_files_are_uploaded_in_parts_each_by_itself() {
    let world = world(&json!({"maxRowsPerFile": 2})).await;
    let wide = fixed::PART_BYTES;
    let acts = std::iter::repeat_n(Act::Wide(wide), 5).chain([Act::End(5)]);
    world.source.plays(acts);
    let (_, _, files) = completed(&world).await;
    let row = wide + "wide,\n".len();
    let lengths: Vec<usize> = files.iter().map(Vec::len).collect();
    assert_eq!(lengths, [10 + 2 * row, 10 + 2 * row, 10 + row]);
}

#[tokio::test]
async fn what_was_changed_is_counted_over_all_files() {
    let world = world(&json!({"maxRowsPerFile": 2})).await;
    let row = || ["=1+1".to_owned(), "@x".to_owned()];
    world.source.plays([Act::Cells(vec![row(), row(), row()]), Act::End(3)]);
    let (id, _, _) = completed(&world).await;
    assert_eq!(world.job(id).await.file.expect("a file").warnings.guarded_cells, 6);
}

#[tokio::test]
async fn limits_are_of_all_files_together_and_leave_none() {
    let few = |limit: fn(&mut outport_domain::limits::Limits)| async move {
        let mut world = World::with(CrashPlan::none(), |limits| {
            no_retries(limits);
            limit(limits);
        })
        .await;
        request(&mut world, &json!({"maxRowsPerFile": 2}));
        world
    };
    let acts = [Act::Rows(3), Act::Rows(3), Act::End(6)];
    let exceeded = FailureCode::LimitExceeded;
    let files = few(|limits| limits.files_per_export = 2).await;
    let message = assert_failed(&files, &acts, exceeded).await;
    assert_eq!(message, "the export has more than 2 files; narrow the filters");
    let rows = few(|limits| limits.rows_per_export = 5).await;
    assert_failed(&rows, &acts, exceeded).await;
    let bytes = few(|limits| limits.bytes_per_export = 80).await;
    assert_failed(&bytes, &acts, exceeded).await;
    let enough = few(|limits| {
        limits.files_per_export = 3;
        limits.rows_per_export = 6;
        limits.bytes_per_export = 3 * 10 + 6 * 13;
    })
    .await;
    enough.source.plays(acts);
    completed(&enough).await;
}

#[tokio::test]
async fn a_count_that_does_not_fit_is_never_completed() {
    let world = world(&json!({"maxRowsPerFile": 2})).await;
    assert_failed(&world, &[Act::Rows(5), Act::End(6)], FailureCode::SourceTruncated).await;
}
