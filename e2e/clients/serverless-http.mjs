// @neondatabase/serverless as it is published, over HTTP.
import assert from 'node:assert/strict';
import { neon, neonConfig, NeonDbError } from '@neondatabase/serverless';
import { domain, hosts, port, url } from './setting.mjs';

// The package's own URL has the usual port, 443, which no test can have.
const ownEndpoint = neonConfig.fetchEndpoint;
assert.equal(ownEndpoint(hosts[0], port, {}), `https://api.${domain}/sql`);
neonConfig.fetchEndpoint = (...given) => ownEndpoint(...given).replace('/sql', `:${port}/sql`);

const failure = async promise => {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof NeonDbError, String(error));
    return error;
  }
  return assert.fail('it succeeded');
};

for (const host of hosts) {
  const sql = neon(url(host));

  // Values go there and come back as what they are in JavaScript.
  const when = new Date('2030-01-02T03:04:05.678Z');
  const [row] = await sql`
    SELECT ${1}::int AS i, ${'é"\\'}::text AS t, ${null}::text AS n, ${true}::bool AS b, ${1.5}::float8 AS f,
           ${'9007199254740993'}::int8 AS l, ${{ a: [1, null] }}::jsonb AS j, ${[1, 2]}::int[] AS a,
           ${['x,"', null]}::text[] AS s, ${when}::timestamptz AS w, ${Buffer.from([0, 255])}::bytea AS y`;
  const { w, y, ...rest } = row;
  assert.deepEqual(rest, {
    i: 1,
    t: 'é"\\',
    n: null,
    b: true,
    f: 1.5,
    l: '9007199254740993',
    j: { a: [1, null] },
    a: [1, 2],
    s: ['x,"', null],
  });
  assert.equal(w.getTime(), when.getTime());
  assert.deepEqual([...y], [0, 255]);

  // All of a result.
  const full = await sql.query('SELECT $1::int AS n, 2 AS n', [7], { fullResults: true, arrayMode: true });
  assert.deepEqual([full.command, full.rowCount, full.rowAsArray, full.rows], ['SELECT', 1, true, [[7, 2]]]);
  assert.deepEqual(
    full.fields.map(field => [field.name, field.dataTypeID]),
    [
      ['n', 23],
      ['n', 23],
    ],
  );
  assert.deepEqual(await sql`SELECT 1 WHERE false`, []);
  assert.deepEqual(await sql``, []);

  // Writes, and what a command says of them.
  await sql`DROP TABLE IF EXISTS h`;
  const made = await sql.query('CREATE TABLE h (id int PRIMARY KEY, v text)', [], { fullResults: true });
  assert.deepEqual([made.command, made.rowCount, made.rows], ['CREATE', null, []]);
  const added = await sql.query("INSERT INTO h SELECT i, 'v' FROM generate_series(1, 3) i", [], { fullResults: true });
  assert.deepEqual([added.command, added.rowCount], ['INSERT', 3]);

  // Errors are Postgres's.
  const syntax = await failure(sql.query('SELECT 1 FROM WHERE'));
  assert.deepEqual([syntax.code, syntax.severity, syntax.position], ['42601', 'ERROR', '15']);
  const unique = await failure(sql`INSERT INTO h VALUES (${1}, 'again')`);
  assert.deepEqual([unique.code, unique.table, unique.constraint], ['23505', 'h', 'h_pkey']);
  assert.match(unique.detail, /\(id\)=\(1\)/);

  // A batch is one transaction, whole or not at all.
  const [[first], updated] = await sql.transaction([sql`SELECT count(*)::int AS n FROM h`, sql`UPDATE h SET v = 'w'`]);
  assert.deepEqual([first, updated], [{ n: 3 }, []]);
  const half = sql.transaction([sql`DELETE FROM h`, sql`INSERT INTO h VALUES (1, 'a')`, sql`SELECT 1 / 0`]);
  assert.equal((await failure(half)).code, '22012');
  assert.deepEqual(await sql`SELECT count(*)::int AS n FROM h WHERE v = 'w'`, [{ n: 3 }]);

  // Its isolation and its modes are those that were asked for.
  const shown = `SELECT current_setting('transaction_isolation') || ' ' || current_setting('transaction_read_only')
                 || ' ' || current_setting('transaction_deferrable') AS s`;
  for (const [options, expected] of [
    [{}, 'read committed off off'],
    [{ isolationLevel: 'RepeatableRead' }, 'repeatable read off off'],
    [{ isolationLevel: 'Serializable', readOnly: true, deferrable: true }, 'serializable on on'],
  ]) {
    assert.deepEqual(await sql.transaction([sql.query(shown)], options), [[{ s: expected }]]);
  }
  const readOnly = sql.transaction([sql`DELETE FROM h`], { readOnly: true });
  assert.equal((await failure(readOnly)).code, '25006');

  // What is not true gets no answer that tells more.
  const told = new Set();
  for (const wrong of [
    url(host, { secret: 'wrong' }),
    url(host, { role: 'nobody' }),
    url(host.replace(/^[^.]+/, 'ep-none')),
  ]) {
    const error = await failure(neon(wrong)`SELECT 1`);
    told.add(`${error.code} ${error.message.replace('nobody', 'app')}`);
  }
  assert.deepEqual([...told], ['28P01 password authentication failed for user "app"']);
  assert.equal((await failure(neon(url(host, { database: 'none' }))`SELECT 1`)).code, '3D000');
}

// Many at once.
const sql = neon(url(hosts[0]));
const many = await Promise.all(Array.from({ length: 200 }, (_, i) => sql`SELECT ${i}::int AS i`));
assert.deepEqual(
  many.map(([{ i }]) => i),
  Array.from({ length: 200 }, (_, i) => i),
);
process.stdout.write('done\n');
