import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.sql.Connection;
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
 * ShedLock on PostgreSQL by JDBC: acquire and release, a bare write by the same connections. It
 * can't wait for a lock, so there is no handover.
 *
 * <pre>PeerShedlock URL ROUNDS ROUND_MS [HANDOVERS]      prints a JSON object a line</pre>
 */
public final class PeerShedlock {
    private static final int WARM_MS = 3000; // until what runs often is compiled

    interface Work {
        void once() throws SQLException;
    }

    private static void show(String name, double[] values) {
        Arrays.sort(values);
        System.out.printf(Locale.ROOT,
                          "{\"name\": \"%s\", \"unit\": \"us\", \"n\": %d", name, values.length);
        String[] names = {"min", "p50", "p90", "p99", "max"};
        double[] at = {0, .5, .9, .99, 1};
        for (int i = 0; i < at.length; i++) {
            double value = values[(int) (at[i] * (values.length - 1) + .5)];
            System.out.printf(Locale.ROOT, ", \"%s\": %.3f", names[i], value);
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

    private static void pair(LockProvider locks) {
        locks.lock(new LockConfiguration(ClockProvider.now(), "pairs", Duration.ofSeconds(30),
                                         Duration.ZERO)).orElseThrow().unlock();
    }

    public static void main(String[] args) throws SQLException {
        int rounds = Integer.parseInt(args[1]), ms = Integer.parseInt(args[2]);
        HikariConfig config = new HikariConfig();
        config.setJdbcUrl("jdbc:postgresql" + args[0].substring("postgres".length())
                          + "&sslmode=disable");
        config.setMaximumPoolSize(2);
        try (HikariDataSource pool = new HikariDataSource(config)) {
            ask(pool, "CREATE TABLE shedlock (name varchar(64) PRIMARY KEY, lock_until timestamp"
                      + " NOT NULL, locked_at timestamp NOT NULL,"
                      + " locked_by varchar(255) NOT NULL)");
            ask(pool, "CREATE TABLE peer (key text PRIMARY KEY, rev bigint)");
            ask(pool, "INSERT INTO peer VALUES ('k', 1)");
            LockProvider locks = new JdbcLockProvider(pool);
            Work write = () -> ask(pool, "UPDATE peer SET rev = rev + 1 WHERE key = 'k'"
                                         + " AND rev >= 0");
            perRound(WARM_MS, () -> pair(locks));
            perRound(WARM_MS, write);
            double[] pairs = new double[rounds], writes = new double[rounds];
            for (int i = 0; i < rounds; i++) {
                pairs[i] = perRound(ms, () -> pair(locks));
                writes[i] = perRound(ms, write);
            }
            show("acquire+release", pairs);
            show("raw", writes);
        }
    }
}
