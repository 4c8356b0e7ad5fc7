// The second judge of histories: reads them as text (history_text.c) and asks Porcupine, a
// linearizability checker that knows nothing of tokens, whether a lock can have behaved so. Built
// by tools/porcupine; run by tests/history.
//
// An empty line ends a history. Each of its keys is one search; of a key with more than 2,000
// operations the answer is "unknown". Answers one line per history:
//
//    keys N operations N illegal N unknown N busy N open N [the first key that is wrong]
//
// where "open" are the refusals that cannot be judged, because a request whose outcome nobody knows
// may have been in the way.
package main

import (
    "bufio"
    "encoding/json"
    "fmt"
    "math"
    "os"
    "sort"
    "strings"
    "time"

    "github.com/anishathalye/porcupine"
)

const (
    most  = 2000
    limit = 30 * time.Minute // for slow machines; most take milliseconds
    never = math.MaxInt64
)

type op struct {
    T0    int64  `json:"t0"`
    T1    *int64 `json:"t1"`
    Asked int64  `json:"asked"`
    Cli   int    `json:"cli"`
    Op    string `json:"op"`
    Key   string `json:"key"`
    Res   string `json:"res"`
    Mode  string `json:"mode"`
    Limit int    `json:"limit"`
    Tok   uint64 `json:"tok"`
    TTL   int64  `json:"ttl"`
    Last  int64  `json:"last"`
}

// What can happen to a lock; each at one moment of its interval.
const (
    grant   = iota // the token is given out
    end            // its grant ends
    mark           // its grant ends, and the event is done
    holds          // is the grant in force?
    refuse         // does anybody hold?
    done           // is the event done, by this one?
    nothing        // cannot have happened
)

type event struct {
    what, limit int
    mode        string
    token       uint64
}

type state struct {
    last, marked uint64
    holders      string // "token mode limit;" for each, in the order of the grants
}

func holder(e event) string { return fmt.Sprintf("%d %s %d;", e.token, e.mode, e.limit) }

// find says where the holder with this token stands in the list.
func find(s state, token uint64) (int, int) {
    prefix := fmt.Sprintf("%d ", token)
    for at := 0; at < len(s.holders); {
        next := at + strings.IndexByte(s.holders[at:], ';') + 1
        if strings.HasPrefix(s.holders[at:], prefix) {
            return at, next
        }
        at = next
    }
    return -1, -1
}

func admits(s state, e event) bool {
    least, n := e.limit, 0
    for _, h := range strings.Split(s.holders, ";") {
        var token uint64
        var mode string
        var limit int
        if h == "" {
            continue
        }
        if _, err := fmt.Sscanf(h, "%d %s %d", &token, &mode, &limit); err != nil {
            panic(err)
        }
        n++
        if e.mode == "exclusive" || mode != e.mode {
            return false
        }
        if limit < least {
            least = limit
        }
    }
    return e.mode != "limited" || n < least
}

var model = porcupine.Model{
    Init: func() interface{} { return state{} },
    Step: func(was, input, _ interface{}) (bool, interface{}) {
        s, e := was.(state), input.(event)
        at, next := -1, -1
        if e.what == end || e.what == mark || e.what == holds {
            if at, next = find(s, e.token); at < 0 {
                return false, s
            }
        }
        switch e.what {
        case grant:
            if e.token <= s.last || s.marked != 0 || !admits(s, e) {
                return false, s
            }
            return true, state{e.token, s.marked, s.holders + holder(e)}
        case end:
            return true, state{s.last, s.marked, s.holders[:at] + s.holders[next:]}
        case mark:
            return s.marked == 0, state{s.last, e.token, s.holders[:at] + s.holders[next:]}
        case nothing:
            return false, s
        case refuse:
            return s.holders != "", s
        case done:
            return s.marked == e.token, s
        }
        return true, s // holds
    },
}

type span struct{ from, to int64 }

func (o op) until() int64 {
    if o.T1 == nil {
        return never
    }
    return *o.T1
}

func (o op) asks() bool { return o.Op == "try" || o.Op == "acquire" || o.Op == "once_begin" }

func (o op) perhaps() bool {
    return o.Res == "ok" || o.Res == "open" || o.Res == "unknown" || o.Res == "unavailable"
}

// over says between which moments a grant has ended, and whether by becoming the marker.
func over(g op, of []op, marked uint64) (span, bool) {
    from := g.Asked // one that was never believed may have been over before it was told
    if g.Last > from {
        from = g.Last
    }
    in, marks := span{from, never}, false
    for _, o := range of { // a holder of what was broken may believe a little longer
        if o.Op == "break" && o.perhaps() && o.T0 < in.from {
            in.from = o.T0
        }
    }
    for _, o := range of {
        ends := o.Op == "release" || o.Op == "once_done" || o.Op == "break"
        if !ends || o.Res != "ok" {
            continue
        }
        if o.T0 > in.from {
            in.from = o.T0
        }
        if o.until() < in.to {
            in.to = o.until()
        }
        marks = marks || o.Op == "once_done"
    }
    if g.Tok == marked && !marks {
        for _, o := range of {
            if o.Op == "once_done" && o.perhaps() {
                marks = true
                in.from = o.T0
            }
        }
    }
    return in, marks
}

// claim is how long a grant lasts, in ns, that its owner doesn't come for.
func claim(o op) int64 {
    if o.TTL != 0 && o.TTL < 1000 {
        return o.TTL * 1000000
    }
    return 1000000000
}

// events turns what clients wrote down into what must have happened.
func events(ops []op) (list []porcupine.Operation, busy, open int) {
    add := func(o op, e event, in span) {
        list = append(list, porcupine.Operation{ClientId: o.Cli, Input: e, Call: in.from,
            Return: in.to})
    }
    about := map[uint64][]op{}
    marked := uint64(0)
    var shadows []span // of requests that may have held without anybody's having seen it
    for _, o := range ops {
        if o.Tok != 0 && !o.asks() {
            about[o.Tok] = append(about[o.Tok], o)
        }
        if o.Res == "done" {
            marked = o.Tok
        }
        switch {
        case o.asks() && o.Res == "ok":
            // A grant to a client that was stopped may have run out before it was seen: it
            // isn't the one that was told.
            if o.until()-o.Asked >= claim(o)/2 {
                shadows = append(shadows, span{o.Asked, o.until()})
            }
        case !o.asks() || o.Res == "busy":
        case o.Res == "timeout" || o.Res == "canceled" || o.Res == "done":
            // A wait for an event may have been granted its key just to see that it is done.
            shadows = append(shadows, span{o.Asked, o.until()})
        default:
            shadows = append(shadows, span{o.Asked, never})
        }
    }
    lease, told := map[uint64]int64{}, map[uint64]bool{}
    for _, o := range ops {
        if o.asks() && o.Res == "ok" {
            lease[o.Tok], told[o.Tok] = o.TTL, true
        }
    }
    for _, o := range ops { // of a grant that nobody was told of
        if o.Op == "break" && o.perhaps() && !told[o.Tok] {
            shadows = append(shadows, span{0, o.until()})
        }
    }
    for _, o := range ops {
        now := span{o.Asked, o.until()}
        switch {
        case o.asks() && o.Res == "ok":
            add(o, event{grant, o.Limit, o.Mode, o.Tok}, now)
            in, marks := over(o, about[o.Tok], marked)
            what := end
            if marks {
                what = mark
            }
            if in.from > in.to {
                what, in.to = nothing, in.from
            }
            add(o, event{what: what, token: o.Tok}, in)
        case o.asks() && o.Res == "busy":
            free := true
            for _, s := range shadows {
                free = free && (s.from > now.to || s.to < now.from)
            }
            if busy++; free {
                add(o, event{what: refuse}, now)
            } else {
                open++
            }
        case o.Res == "done":
            add(o, event{what: done, token: o.Tok}, now)
        case (o.Op == "renew" && lease[o.Tok] != 0 || o.Op == "confirm") && o.Res == "ok":
            add(o, event{what: holds, token: o.Tok}, now)
        }
    }
    return list, busy, open
}

type verdict struct {
    keys, operations, illegal, unknown, busy, open int
    why                                            string
}

func (v *verdict) judge(key string, ops []op) {
    v.keys++
    v.operations += len(ops)
    list, busy, open := events(ops)
    v.busy += busy
    v.open += open
    result := porcupine.CheckResult(porcupine.Unknown)
    if len(ops) <= most {
        result = porcupine.CheckOperationsTimeout(model, list, limit)
    }
    switch result {
    case porcupine.Ok:
        return
    case porcupine.Illegal:
        v.illegal++
    default:
        v.unknown++
    }
    if v.why == "" {
        v.why = fmt.Sprintf(" %s: %s, of %d operations", key, result, len(ops))
    }
}

func main() {
    in := bufio.NewScanner(os.Stdin)
    in.Buffer(make([]byte, 1<<16), 1<<20)
    byKey := map[string][]op{}
    for in.Scan() {
        if len(in.Bytes()) > 0 {
            o := op{Mode: "exclusive"}
            if err := json.Unmarshal(in.Bytes(), &o); err != nil {
                fmt.Printf("not a history: %v\n", err)
                os.Exit(65)
            }
            if o.Asked == 0 {
                o.Asked = o.T0
            }
            byKey[o.Key] = append(byKey[o.Key], o)
            continue
        }
        v := verdict{}
        keys := make([]string, 0, len(byKey))
        for key := range byKey {
            keys = append(keys, key)
        }
        sort.Strings(keys)
        for _, key := range keys {
            v.judge(key, byKey[key])
        }
        fmt.Printf("keys %d operations %d illegal %d unknown %d busy %d open %d%s\n", v.keys,
            v.operations, v.illegal, v.unknown, v.busy, v.open, v.why)
        byKey = map[string][]op{}
    }
}
