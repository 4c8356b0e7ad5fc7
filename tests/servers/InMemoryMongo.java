/*
 * A server that speaks MongoDB's protocol and keeps everything in memory. Built by
 * tools/mongo-java-server; run by tests/servers/mongodb.
 *
 * Arguments: the port (0: a free one), a file for the commands that it gets, one in which the
 * process and the port stand as soon as it listens; then how it differs from a good one:
 *
 *   primary, secondary, mongos   what it says that it is; a primary has change streams
 *   tls FILE PASSWORD            over TLS, with the key and the certificate of this PKCS #12 file
 *   fails COMMAND CODE FROM N    does this command not, but answers with this error, from the
 *                                FROMth on, N times
 *   has OPTION                   says of its collections that they have this option
 *   unsure N                     writes, but says that the majority hasn't confirmed it, N times
 */
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.exception.MongoServerError;
import io.netty.channel.Channel;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.X509Certificate;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;

class InMemoryMongo extends MemoryBackend {
    static String kind = "";
    static String failing = "";
    static int code;
    static int from;
    static int to;
    static final AtomicInteger seen = new AtomicInteger();
    static final AtomicInteger unsure = new AtomicInteger();
    static PrintStream log;
    static String option = "";
    static int port;

    public static void main(String[] args) throws Exception {
        log = new PrintStream(new FileOutputStream(args[1]), true);
        MongoServer server = new MongoServer(new InMemoryMongo());
        for (int i = 3; i < args.length; i++) {
            if (args[i].equals("tls")) {
                secure(server, args[++i], args[++i]);
            } else if (args[i].equals("unsure")) {
                unsure.set(Integer.parseInt(args[++i]));
            } else if (args[i].equals("has")) {
                option = args[++i];
            } else if (args[i].equals("fails")) {
                failing = args[++i];
                code = Integer.parseInt(args[++i]);
                from = Integer.parseInt(args[++i]);
                to = from + Integer.parseInt(args[++i]);
            } else {
                kind = args[i];
            }
        }
        if (kind.equals("primary")) server.enableOplog();
        /* As many threads as there may be change streams: each keeps one busy. */
        server.bind(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 1, 256);
        port = server.getLocalAddress().getPort();
        Path up = Path.of(args[2]);
        Path half = Path.of(args[2] + ".half");
        Files.writeString(half, ProcessHandle.current().pid() + " " + port + "\n");
        Files.move(half, up, java.nio.file.StandardCopyOption.ATOMIC_MOVE);
    }

    static void secure(MongoServer server, String file, String password) throws Exception {
        KeyStore keys = KeyStore.getInstance("PKCS12");
        keys.load(new FileInputStream(file), password.toCharArray());
        String name = keys.aliases().nextElement();
        server.enableSsl((PrivateKey) keys.getKey(name, password.toCharArray()), null,
                (X509Certificate) keys.getCertificate(name));
    }

    @Override
    public Document handleCommand(Channel client, String database, String command, Document query) {
        Document read = (Document) query.get("readConcern");
        Document write = (Document) query.get("writeConcern");
        log.println("command " + command + (read == null ? "" : " " + read.get("level"))
                + (write == null ? "" : " w=" + write.get("w") + " j=" + write.get("j")));
        int n = command.equals(failing) ? seen.incrementAndGet() : 0;
        if (n >= from && n < to) {
            throw new MongoServerError(code, "AsTold", "it was told to fail");
        }
        if (command.equals("getMore") && query.get("maxTimeMS") != null) {
            return await(client, database, query);
        }
        return alone(client, database, command, query);
    }

    /* One command after the other, and the reply is a copy: it is sent later, when the documents
       that it shows may be changing already. */
    synchronized Document alone(Channel client, String database, String command, Document query) {
        if (command.equals("aggregate")) showFields((List<?>) query.get("pipeline"));
        Document reply = super.handleCommand(client, database, command, query);
        describeUpdates((Document) reply.get("cursor"));
        if (command.equalsIgnoreCase("isMaster")) {
            describe(reply);
        } else if (command.equals("listCollections") && !option.isEmpty()) {
            for (Object found : (List<?>) ((Document) reply.get("cursor")).get("firstBatch")) {
                ((Document) found).put("options", new Document(option, new Document("a", 1)));
            }
        } else if (command.equals("findAndModify")) {
            note(database + "." + query.get(command), query, (Document) reply.get("value"));
            if (unsure.getAndDecrement() > 0) {
                reply.put("writeConcernError", new Document("code", 64)
                        .append("errmsg", "waiting for replication timed out"));
            }
        }
        return reply.cloneDeeply();
    }

    /* The log that change streams read: mongo-java-server notes all writes but these. */
    synchronized void note(String collection, Document query, Document value) {
        if (value == null) return;
        List<Object> id = List.of(value.get("_id"));
        if (query.get("remove") != null) {
            oplog.handleDelete(collection, (Document) query.get("query"), id);
        } else {
            Document update = (Document) query.get("update");
            Document set = ((Document) update.get("$set")).cloneDeeply();
            set.put("_id", value.get("_id"));
            oplog.handleUpdate(collection, (Document) query.get("query"),
                    new Document("$set", set), id);
        }
        notifyAll();
    }

    /* What an update has set is in mongo-java-server's "fullDocument"; others tell it as an
       "updateDescription", and have the key where it has none. */
    static void showFields(List<?> pipeline) {
        if (pipeline == null || pipeline.isEmpty()
                || !((Document) pipeline.get(0)).containsKey("$changeStream")) return;
        for (Object stage : pipeline) {
            Document fields = (Document) ((Document) stage).get("$project");
            if (fields != null) fields.put("fullDocument", 1);
        }
    }

    static void describeUpdates(Document cursor) {
        List<?> batch = cursor == null ? null : (List<?>) cursor.get("nextBatch");
        for (Object found : batch == null ? List.of() : batch) {
            Document event = (Document) found;
            if (!(event.remove("fullDocument") instanceof Document set)) continue;
            event.put("documentKey", new Document("_id", set.remove("_id")));
            event.put("updateDescription", new Document("updatedFields", set));
        }
    }

    /* A change stream answers when there is something, or when its time is over. */
    synchronized Document await(Channel client, String database, Document query) {
        long end = System.nanoTime() + ((Number) query.get("maxTimeMS")).longValue() * 1000000;
        for (;;) {
            Document reply = alone(client, database, "getMore", query);
            long left = (end - System.nanoTime()) / 1000000;
            if (left <= 0
                    || !((List<?>) ((Document) reply.get("cursor")).get("nextBatch")).isEmpty()) {
                return reply;
            }
            try {
                wait(left);
            } catch (InterruptedException e) {
                return reply;
            }
        }
    }

    static void describe(Document reply) {
        String me = "127.0.0.1:" + port;
        if (kind.equals("mongos")) {
            reply.put("msg", "isdbgrid");
        } else if (!kind.isEmpty()) {
            reply.put("ismaster", kind.equals("primary"));
            reply.put("secondary", kind.equals("secondary"));
            reply.put("setName", "rs0");
            reply.put("setVersion", 1);
            reply.put("hosts", List.of(me));
            reply.put("me", me);
        }
    }
}
