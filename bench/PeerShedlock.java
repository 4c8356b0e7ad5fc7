import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.SQLException;
import java.sql.Statement;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbc.JdbcLockProvider;

/**
 * ShedLock on PostgreSQL or MariaDB by JDBC: acquire and release, a bare write by the same
 * connections. It can't wait for a lock, so there is no handover.
 *
 * <pre>PeerShedlock URL ROUNDS ROUND_MS HANDOVERS WARM_MS    prints a JSON object a line</pre>
 */
public final class PeerShedlock {
    interface Work {
        void once() throws SQLException;
    }

    private static void show(String name, String unit, double[] values) {
        Arrays.sort(values);
        System.out.printf(Locale.ROOT,
                          "{\"name\": \"%s\", \"unit\": \"%s\", \"n\": %d", name, unit,
                          values.length);
        String[] names = {"min", "p50", "p90", "p99", "p999", "max"};
        double[] at = {0, .5, .9, .99, .999, 1};
        for (int i = 0; i < at.length; i++) {
            double value = values[(int) (at[i] * (values.length - 1) + .5)];
            System.out.printf(Locale.ROOT, ", \"%s\": %.6f", names[i], value);
        }
        System.out.println("}");
    }

    private static double perRound(int ms, Work work) throws SQLException {
        long start = System.nanoTime(), n = 0, took;
        do {
            work.once();
            n++;
            took = System.nanoTime() - start;
        } while (took < ms * 1e6);
        return took / 1e3 / n;
    }

    private static void ask(HikariDataSource pool, String text) throws SQLException {
        try (Connection to = pool.getConnection(); Statement s = to.createStatement()) {
            s.executeUpdate(text);
        }
    }

    // Prepared, as ours is (the driver keeps it for its connection).
    private static void write(HikariDataSource pool) throws SQLException {
        try (Connection to = pool.getConnection();
             PreparedStatement s = to.prepareStatement("UPDATE peer_row SET rev = rev + 1"
                                                       + " WHERE name = 'k' AND rev >= 0")) {
            s.executeUpdate();
        }
    }

    private static void pair(LockProvider locks) {
        locks.lock(new LockConfiguration(ClockProvider.now(), "pairs", Duration.ofSeconds(30),
                                         Duration.ZERO)).orElseThrow().unlock();
    }

    public static void main(String[] args) throws SQLException {
        int rounds = Integer.parseInt(args[1]), ms = Integer.parseInt(args[2]);
        int warm = Integer.parseInt(args[4]);
        HikariConfig config = new HikariConfig();
        String[] url = args[0].split(":", 2);
        config.setJdbcUrl(url[0].equals("mariadb")
                          ? "jdbc:" + args[0] + "&sslMode=disable&useServerPrepStmts=true"
                          : "jdbc:postgresql:" + url[1] + "&sslmode=disable");
        config.setMaximumPoolSize(2);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            ask(pool, "CREATE TABLE IF NOT EXISTS shedlock (name varchar(64) PRIMARY KEY,"
                      + " lock_until timestamp(3) NOT NULL, locked_at timestamp(3) NOT NULL,"
                      + " locked_by varchar(255) NOT NULL)");
            // On this server there may have been others before.
            ask(pool, "DROP TABLE IF EXISTS peer_row");
            ask(pool, "CREATE TABLE peer_row (name varchar(64) PRIMARY KEY, rev bigint)");
            ask(pool, "INSERT INTO peer_row VALUES ('k', 1)");
            LockProvider locks = new JdbcLockProvider(pool);
            perRound(warm, () -> pair(locks));
            perRound(warm, () -> write(pool));
            double[] pairs = new double[rounds], writes = new double[rounds];
            double[] ratios = new double[rounds];
            for (int i = 0; i < rounds; i++) {
                pairs[i] = perRound(ms, () -> pair(locks));
                writes[i] = perRound(ms, () -> write(pool));
                ratios[i] = pairs[i] / writes[i];
            }
            show("acquire+release / raw", "x", ratios);
            show("acquire+release", "us", pairs);
            show("raw", "us", writes);
        }
    }
}
