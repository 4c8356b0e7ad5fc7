package main

import (
    "bufio"
    "fmt"
    "math/rand"
    "os"
    "strings"
    "syscall"
    "time"
    "unsafe"
)

// The clock that all competitors have: CLOCK_MONOTONIC.
func monotonic() int64 {
    var t syscall.Timespec
    if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1,
        uintptr(unsafe.Pointer(&t)), 0); e != 0 {
        must(e)
    }
    return t.Nano()
}

const (
    last  = 128
    nap   = 500 * time.Microsecond
    awake = int64(200 * time.Microsecond)
)

// What a competitor is told to do, and the file in which they see each other (nil: none).
type turns struct {
    key                      string
    start, end, hold, spread int64
    me                       int
    file                     *os.File
}

func newTurns(words []string) (t turns) {
    var path string
    _, err := fmt.Sscan(strings.Join(words, " "), &t.key, &t.start, &t.end, &t.hold, &t.spread,
        &t.me, &path)
    must(err)
    if path != "-" {
        t.file, err = os.OpenFile(path, os.O_RDWR, 0)
        must(err)
    }
    return t
}

func (t turns) mark(at, value int) {
    if t.file != nil {
        _, err := t.file.WriteAt([]byte{byte(value)}, int64(at))
        must(err)
    }
}

func (t turns) wait(until func(seen []byte) bool) {
    for t.file != nil && monotonic() < t.end {
        seen := make([]byte, last+1)
        _, err := t.file.ReadAt(seen, 0)
        must(err)
        if until(seen) {
            return
        }
        time.Sleep(nap)
    }
}

func (t turns) wanted(seen []byte) bool {
    for i, wants := range seen[:last] {
        if wants != 0 && i != t.me {
            return true
        }
    }
    return false
}

func (t turns) passedOn(seen []byte) bool { return int(seen[last]) != t.me }

func (t turns) keep() int64 {
    length := t.hold + rand.Int63n(t.spread+1)
    until := monotonic() + length
    time.Sleep(time.Duration(length - awake))
    for monotonic() < until {
        continue
    }
    return monotonic()
}

func loop(p peer, t turns, out *bufio.Writer) {
    type times struct{ asked, had, gave int64 }
    holds := []times{}
    time.Sleep(time.Duration(t.start - monotonic()))
    for asked := monotonic(); asked < t.end; asked = monotonic() {
        t.mark(t.me, 1)
        release := p.lock(t.key)
        had := monotonic()
        t.mark(last, t.me)
        t.mark(t.me, 0)
        t.wait(t.wanted)
        holds = append(holds, times{asked, had, t.keep()})
        release()
        t.wait(t.passedOn)
    }
    for _, h := range holds {
        fmt.Fprintln(out, h.asked, h.had, h.gave)
    }
    fmt.Fprintln(out, "end")
}

// A competitor: see bench/contend/competitor.h.
func compete(p peer) {
    out := bufio.NewWriter(os.Stdout)
    fmt.Fprintln(out, "ready")
    out.Flush()
    var release func()
    for in := bufio.NewScanner(os.Stdin); in.Scan(); out.Flush() {
        words := strings.Fields(in.Text())
        switch words[0] {
        case "take":
            release = p.lock(words[1])
            fmt.Fprintln(out, "had", monotonic())
        case "loop":
            loop(p, newTurns(words[1:]), out)
        default:
            fmt.Fprintln(out, "gave", monotonic())
            release()
        }
    }
}
