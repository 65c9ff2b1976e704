// @neondatabase/serverless as it is published, over WebSockets: the client and the pool of node-postgres within frames.
import assert from 'node:assert/strict';
import { Client, neonConfig, Pool } from '@neondatabase/serverless';
import WebSocket from 'ws';
import { hosts, port, url } from './setting.mjs';

neonConfig.webSocketConstructor = WebSocket;
// The package's own URL has the usual port, 443, which no test can have.
assert.equal(neonConfig.wsProxy(hosts[0], port), `${hosts[0]}/v2`);
neonConfig.wsProxy = host => `${host}:${port}/v2`;
assert.equal(neonConfig.pipelineConnect, 'password');

const failure = async promise => {
  try {
    await promise;
  } catch (error) {
    return error;
  }
  return assert.fail('it succeeded');
};

const session = async connectionString => {
  const client = new Client({ connectionString });
  client.on('error', () => {});
  await client.connect();
  return client;
};

for (const host of hosts) {
  for (const pipelined of ['password', false]) {
    neonConfig.pipelineConnect = pipelined;
    const client = await session(url(host));
    const { rows } = await client.query('SELECT $1::int AS i, current_user AS u, $2::jsonb AS j', [7, { a: 1 }]);
    assert.deepEqual(rows, [{ i: 7, u: 'app', j: { a: 1 } }]);
    await client.query('BEGIN');
    await client.query('CREATE TABLE w (a int)');
    await client.query('ROLLBACK');
    assert.equal((await failure(client.query('SELECT * FROM w'))).code, '42P01');
    // A value that takes many frames, both ways.
    const long = 'x'.repeat(5_000_000);
    const { rows: echoed } = await client.query('SELECT $1::text AS t', [long]);
    assert.ok(echoed[0].t === long);
    await client.end();
  }
  neonConfig.pipelineConnect = 'password';

  const pool = new Pool({ connectionString: url(host), max: 8 });
  const many = await Promise.all(Array.from({ length: 100 }, (_, i) => pool.query('SELECT $1::int AS i', [i])));
  assert.deepEqual(
    many.map(({ rows }) => rows[0].i),
    Array.from({ length: 100 }, (_, i) => i),
  );
  await pool.end();

  const told = new Set();
  for (const wrong of [
    url(host, { secret: 'wrong' }),
    url(host, { role: 'nobody' }),
    url(host.replace(/^[^.]+/, 'ep-none')),
  ]) {
    const client = new Client({ connectionString: wrong });
    const error = await new Promise(resolve => {
      client.on('error', resolve);
      client.connect().then(() => client.query('SELECT 1')).catch(resolve);
    });
    told.add(`${error.code} ${error.message.replace('nobody', 'app')}`);
  }
  assert.deepEqual([...told], ['28P01 password authentication failed for user "app"']);
}
process.stdout.write('done\n');
