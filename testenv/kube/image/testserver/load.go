package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// workers is how many connections or flows are opened concurrently.
	workers = 32
	// keep is how many connections a load holds open.
	keep = 3 * workers
	// firstSource is the lowest local port of flows.
	firstSource = 20000
)

// answer is the outcome of a connection. It is printed, as JSON.
type answer struct {
	URL   int // the index of it
	Began time.Time
	Ended time.Time // answered, or failed
	Who   string    // the host name of the server; "" if it failed
	Error string
}

// load opens count connections to servers, in turn and so many a second, and prints the answers. They stay
// open for a while.
func load(ctx context.Context, count, rate int, urls []string, out io.Writer) error {
	answers := make([]answer, count)
	if count < 1 || rate < 1 {
		return errUsage
	}
	targets, err := resolve(ctx, urls)
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var mu sync.Mutex
	var open []net.Conn // the oldest first
	each(count, func(n int) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c, a := ask(ctx, nil, targets[n%len(urls)])
		a.URL = n % len(urls)
		answers[n] = a
		if c == nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if open = append(open, c); len(open) > keep {
			open[0].Close()
			open = open[1:]
		}
	})
	for _, c := range open {
		c.Close()
	}
	return errors.Join(ctx.Err(), json.NewEncoder(out).Encode(answers))
}

// target is an HTTP server, whose name is resolved.
type target struct {
	url     string
	address string
}

func resolve(ctx context.Context, urls []string) (out []target, err error) {
	for _, x := range urls {
		u, err := url.Parse(x)
		if err != nil {
			return nil, err
		}
		to, err := resolveAddress(ctx, net.JoinHostPort(u.Hostname(), "80"))
		if err != nil {
			return nil, err
		}
		out = append(out, target{x, to.String()})
	}
	return out, nil
}

// resolveAddress resolves the name in HOST:PORT.
func resolveAddress(ctx context.Context, hostPort string) (netip.AddrPort, error) {
	host, portText, err := net.SplitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(found[0].Unmap(), uint16(port)), nil
}

// ask sends a request on a connection of its own, from an address if there is one, and returns the
// connection, nil if there is no answer.
func ask(ctx context.Context, from net.Addr, to target) (net.Conn, answer) {
	a := answer{Began: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, clientTimeout)
	defer cancel()
	c, err := (&net.Dialer{LocalAddr: from}).DialContext(ctx, "tcp4", to.address)
	if err == nil {
		a.Who, err = request(ctx, c, to.url)
		if err != nil {
			c.Close()
		}
	}
	a.Ended = time.Now()
	if err != nil {
		a.Error = err.Error()
		return nil, a
	}
	return c, a
}

// request sends a request on a connection.
func request(ctx context.Context, c net.Conn, url string) (who string, err error) {
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if err := req.Write(c); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(body))
	if resp.StatusCode != http.StatusOK || len(fields) != 3 {
		return "", fmt.Errorf("%s: %q", resp.Status, body)
	}
	return fields[2], nil
}

// clients sends a request from each of count addresses, and prints who answered.
func clients(ctx context.Context, first netip.Addr, count int, url string, out io.Writer) error {
	targets, err := resolve(ctx, []string{url})
	if err != nil {
		return err
	}
	answers := make([]answer, count)
	each(count, func(n int) {
		c, a := ask(ctx, &net.TCPAddr{IP: plus(first, n).AsSlice()}, targets[0])
		if c != nil {
			c.Close()
		}
		answers[n] = a
	})
	return json.NewEncoder(out).Encode(answers)
}

// each calls do with the numbers below count.
func each(count int, do func(n int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for n := int(next.Add(1)) - 1; n < count; n = int(next.Add(1)) - 1 {
				do(n)
			}
		})
	}
	all.Wait()
}

// plus returns the nth address after an IPv4 address.
func plus(a netip.Addr, n int) netip.Addr {
	b := a.As4()
	x := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	x += uint32(n)
	return netip.AddrFrom4([4]byte{byte(x >> 24), byte(x >> 16), byte(x >> 8), byte(x)})
}

// flows is what `testserver flows` prints, as JSON.
type flows struct {
	Answered, Unanswered int
	Error                string // of one that was not answered
}

// useFlows has count flows send twice, each datagram again until it is answered, and prints how many were.
// Each address has the given number of flows: the nth of all is always the same. The socket is closed
// afterwards, which the other side does not hear of.
func useFlows(ctx context.Context, server string, first netip.Addr, perAddress, count int, giveUp time.Duration, out io.Writer) error {
	to, err := resolveAddress(ctx, server)
	if err != nil {
		return err
	}
	var report flows
	var mu sync.Mutex
	each(count, func(n int) {
		from := netip.AddrPortFrom(plus(first, n/perAddress), uint16(firstSource+n%perAddress))
		err := useFlow(ctx, from, to, giveUp)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			report.Unanswered++
			report.Error = err.Error()
		} else {
			report.Answered++
		}
	})
	return json.NewEncoder(out).Encode(report)
}

func useFlow(ctx context.Context, from, to netip.AddrPort, giveUp time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, giveUp)
	defer cancel()
	c, err := (&net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(from)}).DialContext(ctx, "udp4", to.String())
	if err != nil {
		return err
	}
	defer c.Close()
	for _, text := range []string{"one", "two"} {
		if err := echoed(ctx, c, from.String()+" "+text); err != nil {
			return err
		}
	}
	return nil
}

// echoed sends text until it comes back.
func echoed(ctx context.Context, c net.Conn, text string) error {
	b := make([]byte, 100)
	for {
		if _, err := c.Write([]byte(text)); err != nil && !errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
		for again := time.Now().Add(resend); ; {
			if err := c.SetReadDeadline(again); err != nil {
				return err
			}
			n, err := c.Read(b)
			if err == nil && string(b[:n]) == text {
				return nil
			}
			if err != nil { // late, or refused
				break
			}
		}
		if err := pause(ctx, resend/10); err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
	}
}
