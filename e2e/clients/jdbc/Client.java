// pgjdbc as it is published, through the proxy: at an endpoint's own host, and at its pooler's.

import java.io.StringReader;
import java.io.StringWriter;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.PGConnection;

public final class Client {
  private static final int CLIENTS = 8;
  private static final int ROUNDS = 20;

  private final String url;
  private final Properties properties = new Properties();

  private Client(String endpoint) {
    // Java finds no host name that DNS does not have: the endpoint is named in an option.
    url = "jdbc:postgresql://127.0.0.1:" + need("PROXY_PORT") + "/appdb";
    properties.setProperty("user", "app");
    properties.setProperty("password", need("PROXY_PASSWORD"));
    properties.setProperty("options", "endpoint=" + endpoint);
    properties.setProperty("sslmode", "verify-ca");
    properties.setProperty("sslrootcert", need("PROXY_CA"));
    // Statements are prepared by name from their first use on, and rows of a batch become one statement.
    properties.setProperty("prepareThreshold", "1");
    properties.setProperty("reWriteBatchedInserts", "true");
  }

  public static void main(String[] arguments) throws Exception {
    for (String suffix : List.of("", "-pooler")) {
      Client client = new Client(need("PROXY_ENDPOINT") + suffix);
      client.shareStatements();
      client.changeRows();
      client.passValues();
      client.copy();
      client.meetErrors();
    }
    System.out.println("done");
  }

  private static String need(String name) {
    String value = System.getenv(name);
    check(value != null, name + " is not set; storage/system/test_drivers.py runs this");
    return value;
  }

  private static void check(boolean good, String otherwise) {
    if (!good) {
      throw new AssertionError(otherwise);
    }
  }

  private Connection connect() throws SQLException {
    return DriverManager.getConnection(url, properties);
  }

  /** More clients than server connections, each with the same statement by a name of its own. */
  private void shareStatements() throws Exception {
    List<Connection> connections = new ArrayList<>();
    List<PreparedStatement> statements = new ArrayList<>();
    for (int number = 0; number < CLIENTS; number++) {
      Connection connection = connect();
      connections.add(connection);
      statements.add(connection.prepareStatement("SELECT ?::int * 2 AS doubled, ?::text AS said"));
    }
    for (int round = 0; round < ROUNDS; round++) {
      for (PreparedStatement statement : statements) {
        statement.setInt(1, round);
        statement.setString(2, "é" + round);
        try (ResultSet rows = statement.executeQuery()) {
          check(rows.next(), "a row is missing");
          check(rows.getInt("doubled") == 2 * round, "a number came back as another");
          check(rows.getString("said").equals("é" + round), "a text came back as another");
        }
      }
    }
    for (Connection connection : connections) {
      connection.close();
    }
  }

  private void changeRows() throws SQLException {
    try (Connection connection = connect();
        Statement plain = connection.createStatement()) {
      plain.execute("DROP TABLE IF EXISTS jdbc_rows");
      plain.execute("CREATE TABLE jdbc_rows (id serial PRIMARY KEY, said text NOT NULL)");
      connection.setAutoCommit(false);
      String insert = "INSERT INTO jdbc_rows (said) VALUES (?)";
      try (PreparedStatement batch = connection.prepareStatement(insert)) {
        for (int number = 0; number < 500; number++) {
          batch.setString(1, "row " + number);
          batch.addBatch();
        }
        check(batch.executeBatch().length == 500, "a batch has lost statements");
      }
      try (PreparedStatement one = connection.prepareStatement(insert, new String[] {"id"})) {
        one.setString(1, "with a key");
        one.executeUpdate();
        try (ResultSet keys = one.getGeneratedKeys()) {
          check(keys.next() && keys.getInt(1) == 501, "the generated key is another");
        }
      }
      Savepoint savepoint = connection.setSavepoint();
      plain.executeUpdate("DELETE FROM jdbc_rows");
      connection.rollback(savepoint);
      connection.commit();
      // A cursor: fifty rows at a time, of one portal, within the transaction.
      try (PreparedStatement all = connection.prepareStatement("SELECT id FROM jdbc_rows ORDER BY id")) {
        all.setFetchSize(50);
        int expected = 0;
        try (ResultSet rows = all.executeQuery()) {
          while (rows.next()) {
            expected++;
            check(rows.getInt(1) == expected, "a cursor has lost its place");
          }
        }
        check(expected == 501, "a cursor has lost rows");
      }
      plain.executeUpdate("DELETE FROM jdbc_rows");
      connection.rollback();
      try (ResultSet count = plain.executeQuery("SELECT count(*) FROM jdbc_rows")) {
        check(count.next() && count.getInt(1) == 501, "a rollback has not put rows back");
      }
      connection.commit();
      try (ResultSet columns = connection.getMetaData().getColumns(null, "public", "jdbc_rows", "%")) {
        check(columns.next() && columns.getString("COLUMN_NAME").equals("id"), "a column is not described");
      }
      connection.commit();
    }
  }

  private void passValues() throws SQLException {
    UUID id = UUID.fromString("12345678-1234-1234-1234-123456789abc");
    OffsetDateTime moment = OffsetDateTime.of(2030, 2, 1, 12, 30, 0, 0, ZoneOffset.UTC);
    byte[] bytes = new byte[3_000_000];
    Arrays.fill(bytes, (byte) 0xC3);
    try (Connection connection = connect();
        PreparedStatement values = connection.prepareStatement("SELECT ?::uuid, ?::timestamptz, ?::bytea, ?::int[]")) {
      // Beyond a few uses the driver asks for values in binary.
      for (int round = 0; round < ROUNDS; round++) {
        values.setObject(1, id);
        values.setObject(2, moment);
        values.setBytes(3, round == 0 ? bytes : new byte[] {0, 1, (byte) 0xFF});
        values.setArray(4, connection.createArrayOf("int4", new Integer[] {1, null, 3}));
        try (ResultSet row = values.executeQuery()) {
          check(row.next(), "a row is missing");
          check(row.getObject(1, UUID.class).equals(id), "a UUID came back as another");
          check(row.getObject(2, OffsetDateTime.class).isEqual(moment), "a moment came back as another");
          check(row.getBytes(3).length == (round == 0 ? bytes.length : 3), "bytes came back as others");
          Integer[] array = (Integer[]) row.getArray(4).getArray();
          check(Arrays.equals(array, new Integer[] {1, null, 3}), "an array came back as another");
        }
      }
    }
  }

  private void copy() throws Exception {
    try (Connection connection = connect();
        Statement plain = connection.createStatement()) {
      plain.execute("TRUNCATE jdbc_rows");
      var copy = connection.unwrap(PGConnection.class).getCopyAPI();
      long in = copy.copyIn("COPY jdbc_rows FROM STDIN", new StringReader("1\tone\n2\ttwo\n"));
      StringWriter out = new StringWriter();
      copy.copyOut("COPY (SELECT * FROM jdbc_rows ORDER BY id) TO STDOUT", out);
      check(in == 2 && out.toString().equals("1\tone\n2\ttwo\n"), "a COPY brought back others: " + out);
      plain.execute("DROP TABLE jdbc_rows");
    }
  }

  private void meetErrors() throws SQLException {
    try (Connection connection = connect();
        Statement plain = connection.createStatement()) {
      fails("42P01", () -> plain.executeQuery("SELECT * FROM nothing"));
      connection.setAutoCommit(false);
      fails("42703", () -> plain.executeQuery("SELECT nothing"));
      fails("25P02", () -> plain.executeQuery("SELECT 1"));
      connection.rollback();
      // The driver asks to cancel by a connection of its own.
      plain.setQueryTimeout(1);
      fails("57014", () -> plain.executeQuery("SELECT pg_sleep(60)"));
      connection.rollback();
      plain.setQueryTimeout(0);
      try (ResultSet row = plain.executeQuery("SELECT 1")) {
        check(row.next(), "the connection has not survived");
      }
      connection.commit();
    }
    Properties wrong = new Properties();
    wrong.putAll(properties);
    wrong.setProperty("password", "wrong");
    fails("28P01", () -> DriverManager.getConnection(url, wrong).close());
  }

  private interface Attempt {
    void run() throws SQLException;
  }

  private static void fails(String state, Attempt attempt) {
    try {
      attempt.run();
    } catch (SQLException error) {
      check(state.equals(error.getSQLState()), state + " was expected: " + error);
      return;
    }
    throw new AssertionError(state + " was expected, and nothing failed");
  }
}
