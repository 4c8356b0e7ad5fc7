package main

import (
    "context"
    "net/url"
    "time"

    clientv3 "go.etcd.io/etcd/client/v3"
    "go.etcd.io/etcd/client/v3/concurrency"
)

type etcdClient struct {
    to   *clientv3.Client
    with *concurrency.Session
}

func etcdPeer(server string, lease time.Duration) peer {
    where, err := url.Parse(server)
    must(err)
    to, err := clientv3.New(clientv3.Config{Endpoints: []string{where.Host}})
    must(err)
    with, err := concurrency.NewSession(to, concurrency.WithTTL(int(lease.Seconds())))
    must(err)
    return etcdClient{to, with}
}

func (c etcdClient) lock(key string) func() {
    mutex := concurrency.NewMutex(c.with, "peer/"+key)
    must(mutex.Lock(context.Background()))
    return func() { must(mutex.Unlock(context.Background())) }
}

func (c etcdClient) write() {
    _, err := c.to.Put(context.Background(), "peer.write", "0123456789abcdef")
    must(err)
}

// Its key is in line; then it watches the key before it, from a revision that is gone: for such a
// watch the server looks every 100 ms whether it has caught up.
func (c etcdClient) asleep(int) {
    for in := int64(0); in < 2; time.Sleep(time.Millisecond) {
        r, err := c.to.Get(context.Background(), "peer/handover/", clientv3.WithPrefix(),
            clientv3.WithCountOnly())
        must(err)
        in = r.Count
    }
    time.Sleep(150 * time.Millisecond)
}
