/*
 * A server that speaks MongoDB's protocol and keeps everything in memory. Built by
 * tools/mongo-java-server; run by tests/servers/mongodb.
 *
 * Arguments: the port (0: a free one), a file for the name of each command, and one in which the
 * process and the port stand as soon as it listens.
 */
import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import de.bwaldvogel.mongo.bson.Document;
import io.netty.channel.Channel;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;

class InMemoryMongo {
    public static void main(String[] args) throws IOException {
        final PrintStream log = new PrintStream(new FileOutputStream(args[1]), true);
        MongoServer server = new MongoServer(new MemoryBackend() {
            @Override
            public Document handleCommand(Channel from, String database, String command,
                                          Document query) {
                log.println("command " + command);
                return super.handleCommand(from, database, command, query);
            }
        });
        server.bind("127.0.0.1", Integer.parseInt(args[0]));
        Files.writeString(Path.of(args[2]), ProcessHandle.current().pid() + " "
                + server.getLocalAddress().getPort() + "\n");
    }
}
