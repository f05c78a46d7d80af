package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// workers write concurrently, each its own keys, with a pause after each.
	workers = 4
	pause   = 20 * time.Millisecond
	// attempt bounds one request; unanswered requests are retried.
	attempt = 3 * time.Second
	// reconnect is the client's maximum backoff. By default it increases to minutes, and the test
	// is not about that.
	reconnect = time.Second
	// told is the minimum time without an answer that is logged.
	told = time.Second
	// prefix is the common prefix of all keys.
	prefix = "w/"
	// most bounds the reported errors.
	most = 20
)

// report is the result.
type report struct {
	// Acknowledged is the number of acknowledged writes, each read back at once. Failed is that
	// of failed attempts, which were retried.
	Acknowledged, Failed int
	// Watched is the number of writes that the watch reported.
	Watched int
	// Longest is the longest time without any answer.
	Longest time.Duration
	// Wrong lists wrong answers.
	Wrong []string
}

// etcd is the work of a client.
type etcd struct {
	client *clientv3.Client

	mu     sync.Mutex
	report report
	writes map[string]int64 // acknowledged writes with their revisions, by key
	last   time.Time        // time of the last answer
}

// useEtcd makes each worker write one key after the other for d. A write with an unknown outcome
// is retried, and does nothing if the key exists. Acknowledged keys must be readable at once, be
// reported by a watch that survives all connections, and be the only keys at the end.
func useEtcd(ctx context.Context, endpoint string, d time.Duration, out io.Writer) error {
	again := backoff.DefaultConfig
	again.BaseDelay, again.MaxDelay = pause, reconnect
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: attempt,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: reconnect})}})
	if err != nil {
		return err
	}
	defer client.Close()
	e := &etcd{client: client, writes: map[string]int64{}, last: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := time.Now().Add(d)
	seen := make(chan map[string]int64, 1)
	wanted := make(chan int, 1)
	go func() { seen <- e.watch(ctx, wanted) }()
	var working sync.WaitGroup
	for n := range workers {
		working.Go(func() {
			for i := 0; time.Now().Before(enough) && ctx.Err() == nil; i++ {
				e.write(ctx, fmt.Sprintf("%s%d/%08d", prefix, n, i))
			}
		})
	}
	working.Wait()
	wanted <- len(e.writes)
	time.AfterFunc(patience, cancel)
	e.compare("watched", <-seen)
	e.atTheEnd(ctx)
	e.report.Acknowledged = len(e.writes)
	return json.NewEncoder(out).Encode(e.report)
}

// write writes one key, with as many attempts as necessary, and reads it back.
func (e *etcd) write(ctx context.Context, key string) {
	put := clientv3.OpPut(key, key)
	get := clientv3.OpGet(key)
	made, ok := try(ctx, e, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return e.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(put).Else(get).Commit()
	})
	if !ok {
		return
	}
	revision := made.Header.Revision
	if !made.Succeeded { // an earlier attempt without an answer wrote it
		revision = made.Responses[0].GetResponseRange().Kvs[0].ModRevision
	}
	e.mu.Lock()
	e.writes[key] = revision
	e.mu.Unlock()
	read, ok := try(ctx, e, func(ctx context.Context) (*clientv3.GetResponse, error) { return e.client.Get(ctx, key) })
	if !ok {
		return
	}
	if len(read.Kvs) != 1 || string(read.Kvs[0].Value) != key || read.Kvs[0].ModRevision != revision || read.Header.Revision < revision {
		e.wrong("%s was written at revision %d and is read as %v at revision %d", key, revision, read.Kvs, read.Header.Revision)
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// try retries a request until it is answered; false if ctx ends first.
func try[T any](ctx context.Context, e *etcd, request func(context.Context) (T, error)) (T, bool) {
	for {
		once, cancel := context.WithTimeout(ctx, attempt)
		out, err := request(once)
		cancel()
		e.mu.Lock()
		if err == nil {
			gap := time.Since(e.last)
			e.last, e.report.Longest = time.Now(), max(e.report.Longest, gap)
			e.mu.Unlock()
			if gap > told {
				fmt.Fprintf(os.Stderr, "%s: no answer for %v\n", time.Now().Format(time.TimeOnly), gap.Round(time.Millisecond))
			}
			return out, true
		}
		e.report.Failed++
		e.mu.Unlock()
		fmt.Fprintf(os.Stderr, "%s: %v\n", time.Now().Format(time.TimeOnly), err)
		select {
		case <-ctx.Done():
			return out, false
		case <-time.After(pause):
		}
	}
}

// watch collects what a watch reports, until it has as many keys as wanted or ctx ends.
func (e *etcd) watch(ctx context.Context, wanted <-chan int) map[string]int64 {
	seen, want, last := map[string]int64{}, -1, int64(0)
	events := e.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(1))
	for len(seen) != want {
		select {
		case want = <-wanted:
		case r, ok := <-events:
			if !ok {
				return seen
			}
			for _, event := range r.Events {
				key, revision := string(event.Kv.Key), event.Kv.ModRevision
				if _, again := seen[key]; again || revision <= last || !event.IsCreate() {
					e.wrong("the watch tells of %s at revision %d after revision %d", key, revision, last)
				}
				seen[key], last = revision, revision
			}
		}
	}
	return seen
}

// compare reports differences between the acknowledged writes and got.
func (e *etcd) compare(what string, got map[string]int64) {
	for key, revision := range e.writes {
		if got[key] != revision {
			e.wrong("%s: %s has revision %d, and was acknowledged at %d", what, key, got[key], revision)
		}
	}
	if len(got) != len(e.writes) {
		e.wrong("%s: %d keys, and %d were acknowledged", what, len(got), len(e.writes))
	}
	if what == "watched" {
		e.report.Watched = len(got)
	}
}

func (e *etcd) atTheEnd(ctx context.Context) {
	all, ok := try(ctx, e, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return e.client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	})
	got := map[string]int64{}
	if ok {
		for _, kv := range all.Kvs {
			got[string(kv.Key)] = kv.ModRevision
		}
	}
	e.compare("at the end", got)
}

func (e *etcd) wrong(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.report.Wrong) < most {
		e.report.Wrong = append(e.report.Wrong, fmt.Sprintf(format, args...))
	}
}
