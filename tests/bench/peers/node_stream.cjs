// All orders as CSV by a cursor and a stringifier: node_stream.cjs URL FILE.

const { createWriteStream } = require('node:fs');
const { pipeline } = require('node:stream/promises');
const { stringify } = require('csv-stringify');
const pg = require('pg');
const QueryStream = require('pg-query-stream');

async function main([url, file]) {
  const client = new pg.Client(url);
  await client.connect();
  const rows = client.query(new QueryStream('SELECT * FROM orders', [], { batchSize: 1000 }));
  const csv = stringify({ header: true, cast: { date: (date) => date.toISOString() } });
  await pipeline(rows, csv, createWriteStream(file));
  await client.end();
}

main(process.argv.slice(2));
