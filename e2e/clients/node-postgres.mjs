// node-postgres as it is published, through the proxy: by SCRAM with the certificate checked.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import pg from 'pg';
import { hosts, password, port } from './setting.mjs';

const ca = readFileSync(process.env.NODE_EXTRA_CA_CERTS, 'utf8');

for (const host of hosts) {
  const where = { host, port, user: 'app', password, database: 'appdb', ssl: { ca, servername: host } };
  for (const enableChannelBinding of [false, true]) {
    const client = new pg.Client({ ...where, enableChannelBinding });
    await client.connect();
    const { rows } = await client.query('SELECT $1::int AS i, current_user AS u', [7]);
    assert.deepEqual(rows, [{ i: 7, u: 'app' }]);
    await client.end();
  }
  const pool = new pg.Pool({ ...where, max: 8 });
  // Each connection prepares the statement by this name, and runs it on whatever server connection comes.
  const named = i => pool.query({ name: 'double', text: 'SELECT $1::int * 2 AS d', values: [i] });
  const many = await Promise.all(Array.from({ length: 200 }, (_, i) => named(i)));
  assert.deepEqual(
    many.map(({ rows }) => rows[0].d),
    Array.from({ length: 200 }, (_, i) => 2 * i),
  );
  const client = await pool.connect();
  await client.query('BEGIN');
  await client.query('CREATE TABLE n (a int)');
  await assert.rejects(client.query('SELECT nothing FROM n'), { code: '42703' });
  await client.query('ROLLBACK');
  await assert.rejects(client.query('SELECT * FROM n'), { code: '42P01' });
  client.release();
  await pool.end();
  await assert.rejects(new pg.Client({ ...where, password: 'wrong' }).connect(), { code: '28P01' });
}
process.stdout.write('done\n');
