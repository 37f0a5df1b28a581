/**
 * Runs the table of `tests/golden/stream-consumer-cases.json`: in Node, and in a browser too.
 *
 * @param {typeof import("../consumer.js").Consumer} Consumer
 * @param {any} table
 * @returns {string[]} what is different, one line each
 */
export function differences(Consumer, table) {
  const different = [];
  for (const { name, given, options, steps } of table.cases) {
    const consumer = new Consumer({ ...options, random: () => 0.5 });
    for (const step of [...table.given[given], ...steps]) {
      const { at, in: input, out } = step;
      const [wanted, found] = [out, consumer.step(input, at)].map((it) => JSON.stringify(it));
      if (wanted === found) continue;
      different.push(`${name}, at ${at}: ${JSON.stringify(input)}: ${found} is not ${wanted}`);
      break;
    }
  }
  return different;
}
