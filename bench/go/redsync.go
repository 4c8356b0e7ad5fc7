package main

import (
    "context"
    "log"
    "math"
    "time"

    "github.com/go-redsync/redsync/v4"
    "github.com/go-redsync/redsync/v4/redis/goredis/v9"
    "github.com/redis/go-redis/v9"
)

type redsyncClient struct {
    to    *redis.Client
    by    *redsync.Redsync
    lease time.Duration
}

func redsyncPeer(socket string, lease time.Duration) peer {
    to := redis.NewClient(&redis.Options{Network: "unix", Addr: socket})
    return redsyncClient{to, redsync.New(goredis.NewPool(to)), lease}
}

// With the pauses that it has unless told otherwise: 50 to 250 ms; but it never gives up.
func (c redsyncClient) lock(key string) func() {
    mutex := c.by.NewMutex("peer:"+key, redsync.WithExpiry(c.lease),
        redsync.WithTries(math.MaxInt32))
    must(mutex.Lock())
    return func() {
        if ok, err := mutex.Unlock(); err != nil || !ok {
            log.Fatal("not released: ", err)
        }
    }
}

func (c redsyncClient) write() {
    must(c.to.Set(context.Background(), "peer:write", "0123456789abcdef", 30*time.Second).Err())
}

// It looks at any time of its pause.
func (c redsyncClient) asleep(i int) {
    time.Sleep(time.Duration(30+i*37%200) * time.Millisecond)
}
