// What the scripts of this folder share: where the proxy is, and how its host names are found.
import assert from 'node:assert/strict';
import dns from 'node:dns';

const need = name => {
  const value = process.env[name];
  assert.ok(value, `${name} is not set; these scripts are run by storage/system/test_drivers.py`);
  return value;
};

export const port = Number(need('PROXY_PORT'));
export const domain = need('PROXY_DOMAIN');
export const endpoint = need('PROXY_ENDPOINT');
export const password = need('PROXY_PASSWORD');
export const hosts = [`${endpoint}.${domain}`, `${endpoint}-pooler.${domain}`];

// In place of the wildcard record that the domain has in DNS.
const usual = dns.lookup;
dns.lookup = (host, options, done) => {
  const callback = typeof options === 'function' ? options : done;
  const all = typeof options === 'object' && options.all;
  if (!host.endsWith(`.${domain}`)) return usual(host, options, done);
  return all ? callback(null, [{ address: '127.0.0.1', family: 4 }]) : callback(null, '127.0.0.1', 4);
};

/** A connection string as the console shows it. */
export const url = (host, changes = {}) => {
  const { role, secret, database } = { role: 'app', secret: password, database: 'appdb', ...changes };
  return (
    `postgresql://${encodeURIComponent(role)}:${encodeURIComponent(secret)}@${host}:${port}/${database}` +
    '?sslmode=require&channel_binding=require'
  );
};
