/** How a connection string is written down for one client. */
export type Client = 'url' | 'psql' | 'env' | 'psycopg' | 'sqlalchemy'

export const CLIENTS: Record<Client, string> = {
  url: 'Connection string',
  psql: 'psql',
  env: '.env file',
  psycopg: 'Python, psycopg',
  sqlalchemy: 'Python, SQLAlchemy',
}

/** The name under which the CA's certificate is saved, and looked for by clients in their working directory. */
export const CA_FILE = 'weir-ca.pem'

/** The connection string of a client that knows the server by the CA, and reaches no other. */
export function verifying(uri: string): string {
  const [address = '', query = ''] = uri.split('?')
  const kept = query.split('&').filter((part) => part !== '' && !/^ssl(mode|rootcert)=/.test(part))
  return `${address}?${[...kept, 'sslmode=verify-full', `sslrootcert=${CA_FILE}`].join('&')}`
}

/** What to paste. The string has no character that needs care within double quotes: what is special in it is escaped. */
export function snippet(client: Client, uri: string): string {
  switch (client) {
    case 'url':
      return uri
    case 'psql':
      return `psql "${uri}"`
    case 'env':
      return `DATABASE_URL="${uri}"`
    case 'psycopg':
      return [
        'import psycopg',
        '',
        `with psycopg.connect("${uri}") as connection:`,
        '    print(connection.execute("SELECT version()").fetchone())',
      ].join('\n')
    case 'sqlalchemy':
      return [
        'from sqlalchemy import create_engine, text',
        '',
        `engine = create_engine("${uri.replace(/^postgres(ql)?:/, 'postgresql+psycopg:')}", pool_pre_ping=True)`,
        'with engine.connect() as connection:',
        '    print(connection.execute(text("SELECT version()")).scalar())',
      ].join('\n')
  }
}
