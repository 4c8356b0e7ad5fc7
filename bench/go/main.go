// Peers that are written in Go: acquire and release, a bare write of the same library, the handover
// between two processes. Built by tools/bench-peers.
//
//    peers redsync SOCKET ROUNDS ROUND_MS HANDOVERS WARM_MS     prints a JSON object a line
//    peers etcd URL ROUNDS ROUND_MS HANDOVERS WARM_MS
//    peers redsync|etcd SERVER LEASE_MS                 competes (contend.go)
package main

import (
    "bufio"
    "encoding/json"
    "fmt"
    "log"
    "math"
    "os"
    "os/exec"
    "sort"
    "strconv"
    "time"
)

// A client of one of the libraries.
type peer interface {
    lock(key string) (release func())
    write()
    asleep(i int) // returns when the other process wants "handover" and has gone to sleep
}

func must(err error) {
    if err != nil {
        log.Fatal(err)
    }
}

// As bench.c does.
func show(name, unit string, values []float64) {
    sort.Float64s(values)
    at := func(q float64) float64 {
        return math.Round(values[int(q*float64(len(values)-1)+0.5)]*1e6) / 1e6
    }
    must(json.NewEncoder(os.Stdout).Encode(map[string]any{
        "name": name, "unit": unit, "n": len(values), "min": at(0), "p50": at(0.5),
        "p90": at(0.9), "p99": at(0.99), "p999": at(0.999), "max": at(1)}))
}

func perRound(length time.Duration, once func()) float64 {
    start, n := time.Now(), 0
    for ; time.Since(start) < length; n++ {
        once()
    }
    return float64(time.Since(start).Nanoseconds()) / 1e3 / float64(n)
}

// The other process: for each line that it reads it takes the lock, and says when it had it.
func want(p peer) {
    for in := bufio.NewScanner(os.Stdin); in.Scan(); {
        release := p.lock("handover")
        had := time.Now()
        release()
        fmt.Println(had.UnixNano())
    }
}

func handover(p peer, n int) {
    other := exec.Command(os.Args[0], os.Args[1], os.Args[2])
    other.Stderr = os.Stderr
    in, err := other.StdinPipe()
    must(err)
    out, err := other.StdoutPipe()
    must(err)
    must(other.Start())
    lines, took := bufio.NewScanner(out), []float64{}
    for i := 0; i < n; i++ {
        release := p.lock("handover")
        fmt.Fprintln(in)
        p.asleep(i)
        p.write() // this end is awake
        given := time.Now()
        release()
        if !lines.Scan() {
            log.Fatal("the other process has ended")
        }
        had, err := strconv.ParseInt(lines.Text(), 10, 64)
        must(err)
        took = append(took, float64(had-given.UnixNano())/1e3)
    }
    in.Close()
    must(other.Wait())
    show("handover", "us", took)
}

func inTurns(p peer, rounds int, length, warm time.Duration) {
    pair := func() { p.lock("pairs")() }
    perRound(warm, pair)
    perRound(warm, p.write)
    pairs, writes, ratios := []float64{}, []float64{}, []float64{}
    for i := 0; i < rounds; i++ {
        pairs = append(pairs, perRound(length, pair))
        writes = append(writes, perRound(length, p.write))
        ratios = append(ratios, pairs[i]/writes[i])
    }
    show("acquire+release / raw", "x", ratios)
    show("acquire+release", "us", pairs)
    show("raw", "us", writes)
}

func main() {
    if len(os.Args) != 3 && len(os.Args) != 4 && len(os.Args) != 7 {
        log.Fatal("usage: peers redsync|etcd SERVER LEASE_MS | ROUNDS ROUND_MS HANDOVERS WARM_MS")
    }
    lease := 30 * time.Second
    if len(os.Args) == 4 {
        ms, err := strconv.Atoi(os.Args[3])
        must(err)
        if ms > 0 {
            lease = time.Duration(ms) * time.Millisecond
        }
    }
    peers := map[string]func(string, time.Duration) peer{"redsync": redsyncPeer, "etcd": etcdPeer}
    p := peers[os.Args[1]](os.Args[2], lease)
    switch len(os.Args) {
    case 3:
        want(p)
        return
    case 4:
        compete(p)
        return
    }
    var numbers [4]int
    for i := range numbers {
        n, err := strconv.Atoi(os.Args[3+i])
        must(err)
        numbers[i] = n
    }
    length := time.Duration(numbers[1]) * time.Millisecond
    inTurns(p, numbers[0], length, time.Duration(numbers[3])*time.Millisecond)
    handover(p, numbers[2])
}
