//go:build linux && e2e

package e2e

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/tun"

	"github.com/postern-dev/postern/bench/wan"
	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/testenv/kube"
	"github.com/postern-dev/postern/testenv/kube/image"
	"github.com/postern-dev/postern/testenv/kube/kubetest"
	"github.com/postern-dev/postern/testenv/netlab"
	"github.com/postern-dev/postern/testenv/pki"
)

const (
	// longVariable is how often TestKubectlOverALongPath repeats each transfer (make bench-kubectl).
	longVariable = "POSTERN_KUBECTL"
	// longFile is the size of the file that is copied, and longList the number of ConfigMaps that
	// are listed, of longMap bytes each.
	longFile = 100_000_000
	longList = 96
	longMap  = 1_000_000
	// longTime bounds an attempt, and longTries is how many there are until one succeeds.
	longTime  = time.Hour
	longTries = 3

	thisVersion = "this version"
)

// The paths between the gateways. The short one shows what limits the transfers apart from the path.
var (
	longPath  = wan.Path{RTT: 100 * time.Millisecond, Rate: 1e9, Loss: 0.01, Seed: 1}
	shortPath = wan.Path{RTT: time.Millisecond, Rate: 1e9, Seed: 1}
)

// longTransfer is what a user of edge does with cloud's API server.
type longTransfer struct {
	name   string
	args   []string // of kubectl
	output string   // the file that kubectl's output goes to
	file   string   // the file that grows as data arrives, "" if it is not at edge
	size   int64    // of the data, in bytes
	check  func() error
}

// longRow is a transfer that was measured. If it never succeeded it is the sum of all attempts.
type longRow struct {
	program, path, transfer string
	bytes                   int64
	took                    time.Duration
	failed                  int // attempts that broke off
}

// longWorld is a cluster with pods behind cloud, and edge at the other end of a path:
//
//	node 10.9.0.10 ── 10.9.0.1 cloud 198.51.100.10 ── path ── 198.51.100.20 edge
type longWorld struct {
	*kubeWorld
	dir       string // of the files that kubectl reads and writes
	ca        *pki.CA
	transfers []longTransfer
	mu        sync.Mutex
	rows      []longRow
}

// TestKubectlOverALongPath measures `kubectl cp` and a LIST through gateways of this version and of
// earlier ones. It asserts that what arrives is right, not how long it takes.
func TestKubectlOverALongPath(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv(longVariable))
	if err != nil {
		t.Skipf("it takes many minutes: make bench-kubectl (%s)", longVariable)
	}
	older := olderPrograms(t)
	l := newLongWorld(t)
	newer := program{thisVersion, posternBinary(t)}
	l.measure(newer, shortPath, runs, 1)
	l.measure(newer, longPath, runs, 1)
	for _, p := range older {
		// A connection is limited by losses to a thousandth of the path, so all run at a time.
		l.measure(p, longPath, 1, len(l.transfers))
	}
	t.Logf("median of each:\n%s", l.table())
}

func newLongWorld(t *testing.T) *longWorld {
	t.Helper()
	lab := netlab.New(t)
	w := &world{t: t, lab: lab, cloud: lab.Host("cloud"), edge: lab.Host("edge"), kube: lab.Host("node")}
	cluster := lab.Network("cluster", netip.MustParsePrefix("10.9.0.0/24"))
	w.cloud.Attach("eth1", cluster, netip.MustParseAddr("10.9.0.1"))
	w.kube.Attach("eth0", cluster, netip.MustParseAddr(kubeAddr))
	w.kube.DefaultRoute(netip.MustParseAddr("10.9.0.1"))
	l := &longWorld{kubeWorld: &kubeWorld{world: w, sums: map[string]string{}}, dir: tempDir(t)}
	content := make([]byte, longFile)
	_, _ = rand.Read(content) // never fails
	var err error
	if l.ca, err = pki.NewCA("cloud peers"); err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 15*time.Minute) // which may build the programs
	c, err := kube.StartNode(ctx, kube.NodeOptions{Dir: tempDir(t), Namespace: w.kube.Namespace(), Name: "node",
		NodeAddress: netip.MustParseAddr(kubeAddr), ClientCAs: l.ca.CertPEM()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	l.cluster, l.admin = kubetest.Cluster{Cluster: c}, c.AdminClient()
	t.Cleanup(l.admin.CloseIdleConnections)
	archive := filepath.Join(l.dir, "testserver.tar")
	there, back, list := filepath.Join(l.dir, "there"), filepath.Join(l.dir, "back"), filepath.Join(l.dir, "list")
	if err := errors.Join(c.WaitReady(ctx), image.TestServer(ctx, archive), c.Load(ctx, archive), os.WriteFile(there, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	l.cluster.Run(t, "", "create", "namespace", tenant)
	if err := c.WaitNamespace(ctx, tenant); err != nil {
		t.Fatal(err)
	}
	l.cluster.Run(t, "", "create", "rolebinding", "edge", "-n", tenant, "--clusterrole=edit", "--user=postern:peer:edge")
	l.cluster.Run(t, tenantServer, "apply", "-n", tenant, "-f", "-")
	l.cluster.Run(t, "", "wait", "-n", tenant, "pod/server", "--for=condition=Ready", "--timeout="+patience.String())
	l.cluster.Run(t, "", "cp", there, tenant+"/server:/data/file")
	for i := range longList {
		name := fmt.Sprintf("bulk-%03d", i)
		if l.sums[name], err = l.createConfigMap(ctx, tenant, name, longMap); err != nil {
			t.Fatal(err)
		}
	}
	same := func(file string) error {
		got, err := os.ReadFile(file)
		if err == nil && !bytes.Equal(got, content) {
			err = fmt.Errorf("%s: %d bytes, not those of the %d that were sent", file, len(got), len(content))
		}
		return err
	}
	l.transfers = []longTransfer{
		{"cp from a pod", []string{"cp", tenant + "/server:/data/file", back}, "/dev/null", back, longFile, func() error { return same(back) }},
		{"cp to a pod", []string{"cp", there, tenant + "/server:/data/there"}, "/dev/null", "", longFile, func() error {
			again := filepath.Join(l.dir, "again")
			l.cluster.Run(t, "", "cp", tenant+"/server:/data/there", again)
			return same(again)
		}},
		// With compression three quarters would cross, since the content is base64.
		{"LIST", []string{"get", "--disable-compression", "--raw", "/api/v1/namespaces/" + tenant + "/configmaps"}, list, list, longList * longMap,
			func() error { return l.checkList(list) }},
	}
	return l
}

// checkList compares a list with what was created.
func (l *longWorld) checkList(file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Data     struct{ Content string }
		}
	}
	if err := json.Unmarshal(b, &list); err != nil {
		return fmt.Errorf("the list: %w", err)
	}
	intact := 0
	for _, item := range list.Items {
		if sum, ok := l.sums[item.Metadata.Name]; ok && sum == contentHash(item.Data.Content) {
			intact++
		}
	}
	if intact != longList {
		return fmt.Errorf("%d ConfigMaps of the list are intact, want %d", intact, longList)
	}
	return nil
}

// measure starts gateways at both ends of a path, and does each transfer so many times, some of
// them at once.
func (l *longWorld) measure(p program, path wan.Path, runs, atOnce int) {
	t := l.t
	t.Helper()
	a := longDevice(t, l.world.cloud, netip.MustParsePrefix(cloudAddr+"/24"), 1500)
	b := longDevice(t, l.world.edge, netip.MustParsePrefix(natAddr+"/24"), 1500)
	var wires sync.WaitGroup
	defer wires.Wait()
	defer a.Close()
	defer b.Close()
	down, up := newWire(t, path), newWire(t, path)
	wires.Go(func() { down.carry(a, b) })
	wires.Go(func() { up.carry(b, a) })

	l.cloud = newGateway(t, l.world.cloud, "cloud", l.services)
	l.edge = newGateway(t, l.world.edge, "edge")
	for _, g := range []*gateway{l.cloud, l.edge} {
		g.bin = p.path
		g.start()
		defer g.stop(syscall.SIGTERM)
	}
	l.edge.must("join", l.cloud.invite("--name", "edge"))
	l.edge.waitPeer("cloud", "with an identity", func(p api.PeerStatus) bool { return p.Identity != nil })
	l.waitReachable(t)
	kubeconfig := filepath.Join(tempDir(t), "cloud.kubeconfig")
	l.edge.must("kubeconfig", "cloud", "-f", kubeconfig)

	name := fmt.Sprintf("%v/%g%%", path.RTT, 100*path.Loss)
	free := make(chan struct{}, atOnce)
	var transfers sync.WaitGroup
	for range runs {
		for _, x := range l.transfers {
			free <- struct{}{}
			transfers.Go(func() {
				defer func() { <-free }()
				before := down.bytes() + up.bytes()
				row := l.transfer(x, kubeconfig)
				row.program, row.path = p.version, name
				t.Logf("%v; %.1f MB crossed the path", row, float64(down.bytes()+up.bytes()-before)/1e6)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.rows = append(l.rows, row)
			})
		}
	}
	transfers.Wait()
}

// services are what cloud's gateway offers.
func (l *longWorld) services(s *api.GatewaySpec) {
	pair, err := l.ca.Pair()
	if err != nil {
		l.t.Fatal(err)
	}
	cert, key, err := pair.Write(tempDir(l.t), "peers-ca")
	if err != nil {
		l.t.Fatal(err)
	}
	s.Services.APIServer = &api.APIServerService{Address: l.cluster.Server().String(), ServerName: kube.ServerName, CAFile: l.cluster.CAFile()}
	s.Services.Auth = &api.AuthService{Issuer: &api.Issuer{LocalCA: &api.LocalCA{CertFile: cert, KeyFile: key}}}
}

// transfer runs kubectl at edge until it ends, again when it breaks off. So do slow transfers: kubectl
// ends a copy when there is no answer to its pings within a minute, and the API server a list that
// takes longer than one. And see [cluster.answered].
func (l *longWorld) transfer(x longTransfer, kubeconfig string) longRow {
	c := l.kubectl(kubeconfig, x.args...)
	c.Args = append([]string{"sh", "-c", `exec "$@" >` + x.output, "sh"}, c.Args...)
	row := longRow{transfer: x.name}
	for range longTries {
		start := time.Now()
		_, err := l.run(within(l.t, longTime), l.t, c)
		took := time.Since(start)
		if err == nil {
			row.bytes, row.took = x.size, took
			if err := x.check(); err != nil {
				l.t.Errorf("%s: %v", x.name, err)
			}
			return row
		}
		info, statErr := os.Stat(x.file)
		if statErr != nil {
			l.t.Errorf("%s: %v: %v", x.name, err, statErr)
			return row
		}
		l.t.Logf("%s broke off after %v and %d bytes: %v", x.name, took, info.Size(), err)
		row.failed++
		row.bytes += info.Size()
		row.took += took
	}
	return row
}

func (r longRow) String() string {
	s := fmt.Sprintf("%-12s %-8s %-13s %5.1f MB in %6.1f s, %6.2f Mbit/s", r.program, r.path, r.transfer, float64(r.bytes)/1e6, r.took.Seconds(), r.rate())
	if r.failed > 0 {
		s += fmt.Sprintf(", %d attempts broke off", r.failed)
	}
	return s
}

// rate is in Mbit/s.
func (r longRow) rate() float64 { return float64(r.bytes) * 8 / 1e6 / r.took.Seconds() }

// table has the row with the median rate of each transfer, and how many times as fast this version is.
func (l *longWorld) table() string {
	type cell struct{ program, path, transfer string }
	rows := map[cell][]longRow{}
	var order []cell
	for _, r := range l.rows {
		key := cell{r.program, r.path, r.transfer}
		if rows[key] == nil {
			order = append(order, key)
		}
		rows[key] = append(rows[key], r)
	}
	median := func(key cell) longRow {
		all := slices.SortedFunc(slices.Values(rows[key]), func(a, b longRow) int { return cmp.Compare(a.rate(), b.rate()) })
		return all[len(all)/2]
	}
	var out strings.Builder
	for _, key := range order {
		fmt.Fprintf(&out, "%v", median(key))
		ours := cell{thisVersion, key.path, key.transfer}
		if key != ours && rows[ours] != nil {
			fmt.Fprintf(&out, "; %s: %.1f times as fast", thisVersion, median(ours).rate()/median(key).rate())
		}
		fmt.Fprintln(&out)
	}
	return out.String()
}

// wire carries packets one way over a path.
type wire struct {
	mu    sync.Mutex
	link  *wan.Link
	began time.Time
}

func newWire(t *testing.T, p wan.Path) *wire {
	t.Helper()
	link, err := wan.NewLink(p, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &wire{link: link, began: time.Now()}
}

// wireOffset is the room before a packet: for the kernel's header of offloads.
const wireOffset = 16

// carry moves packets from one device to the other until the first is closed.
func (w *wire) carry(from, to tun.Device) {
	more := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() { w.deliver(to, more) })
	defer wg.Wait()
	defer close(more)
	bufs, sizes := make([][]byte, from.BatchSize()), make([]int, from.BatchSize())
	for i := range bufs {
		bufs[i] = make([]byte, wireOffset+65535)
	}
	for {
		n, err := from.Read(bufs, sizes, wireOffset)
		if err != nil && !errors.Is(err, tun.ErrTooManySegments) {
			return
		}
		w.mu.Lock()
		now := time.Since(w.began)
		for i := range n {
			w.link.Offer(now, 0, bufs[i][wireOffset:wireOffset+sizes[i]])
		}
		w.mu.Unlock()
		select {
		case more <- struct{}{}:
		default:
		}
	}
}

// deliver writes packets when they are due. It waits for more if there are none.
func (w *wire) deliver(to tun.Device, more <-chan struct{}) {
	var bufs [][]byte
	for {
		w.mu.Lock()
		packets, size, _ := w.link.Take(time.Since(w.began))
		due, any := w.link.Next()
		n := 0
		for packet := range slices.Chunk(packets, max(size, 1)) {
			if n == len(bufs) {
				bufs = append(bufs, make([]byte, 0, wireOffset+65535)) // the device joins packets in place
			}
			bufs[n] = append(bufs[n][:wireOffset], packet...)
			n++
		}
		w.mu.Unlock()
		switch {
		case n > 0:
			_, _ = to.Write(bufs[:n], wireOffset) // fails once the device is closed
		case any:
			time.Sleep(due - time.Since(w.began)) // This is the delay.
		default:
			if _, ok := <-more; !ok {
				return
			}
		}
	}
}

// bytes returns how many have been delivered.
func (w *wire) bytes() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.link.Counters()[0].Bytes
}
