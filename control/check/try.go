package check

import (
	"context"
	"time"

	"github.com/postern-dev/postern/control/catalogue"
)

// askAgainAfter is how long a request may go unanswered before it is sent again.
const askAgainAfter = catalogue.SlowAnswer / 2

// try is a request on its own connection, and its result.
type try struct {
	answer
	err error
	// way is the least time of the round trip: connecting takes that and almost no server time, and
	// so does TLS.
	way time.Duration
	// took is the server's longest response time, even without an answer: in the second try that of
	// TLS or the answer, in the first that of the answer.
	took time.Duration
	// again marks the second try; twice says that both were slow.
	again, twice bool
}

// slow reports whether the server took long, apart from the path, and allowing for one lost packet.
func (t try) slow() bool { return catalogue.ServerSlow(t.took, t.way) }

// ask sends the request, and again on a second connection if it is not answered soon. A lost packet
// costs TCP a second or more, and a slow server is slow both times.
func (q question) ask(ctx context.Context, x exchange, way time.Duration) try {
	ctx, cancel := context.WithCancel(ctx)
	tries := make(chan try, 2)
	go func() { tries <- q.once(ctx, x, try{way: way}) }()
	go func() { tries <- q.again(ctx) }()
	var first, second try
	for left := 2; left > 0; left-- {
		t := <-tries
		answered := t.err == nil && t.took < catalogue.SlowAnswer
		if answered || !t.again && t.err != nil && classify(t.err) != timedOut { // no other try tells more
			if cancel(); left == 2 {
				<-tries // it uses a connection
			}
			return t
		}
		if t.again {
			second = t
		} else {
			first = t
		}
	}
	cancel()
	if first.err != nil && second.err == nil {
		first, second = second, first
	}
	if second.way > 0 {
		first.way = min(first.way, second.way)
	}
	first.twice = first.slow() && second.slow()
	return first
}

// once sends the request and waits for the answer.
func (q question) once(ctx context.Context, x exchange, t try) try {
	asked := time.Now()
	t.answer, t.err = x.get(ctx, q.path, t.again || !q.version)
	t.took = time.Since(asked)
	return t
}

// again is once on a new connection, if ctx lasts that long.
func (q question) again(ctx context.Context) try {
	t := try{again: true}
	wait := time.NewTimer(askAgainAfter)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-ctx.Done():
		t.err = ctx.Err()
		return t
	}
	began := time.Now()
	c, err := q.dial(ctx)
	if err != nil {
		t.err = err
		return t
	}
	t.way = time.Since(began)
	defer c.Close()
	began = time.Now()
	secure, err := q.handshake(ctx, c)
	shook := time.Since(began)
	if err == nil {
		t.way = min(t.way, shook)
		t = q.once(ctx, newExchange(secure, q.host, q.token), t)
	} else {
		t.err = err
	}
	t.took = max(t.took, shook)
	return t
}
