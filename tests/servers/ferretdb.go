// A FerretDB whose rows are in an SQLite database: speaks MongoDB's protocol, but lets two win one
// conditional update. Built by tools/ferretdb; run by tests/servers/ferretdb.
//
// Arguments: the address to listen on, and the directory for its data.
package main

import (
    "context"
    "io"
    "log"
    "log/slog"
    "os"

    "github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
    f, err := ferretdb.New(&ferretdb.Config{
        Listener:  ferretdb.ListenerConfig{TCP: os.Args[1]},
        Logger:    slog.New(slog.NewTextHandler(io.Discard, nil)),
        Handler:   "sqlite",
        SQLiteURL: "file:" + os.Args[2] + "/",
    })
    if err != nil {
        log.Fatal(err)
    }
    log.Fatal(f.Run(context.Background()))
}
