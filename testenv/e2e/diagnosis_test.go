//go:build linux && e2e

package e2e

import (
	"cmp"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-dev/postern/control/api"
)

// illness is a real fault, the diagnosis at each side, and how to apply the printed fix.
type illness struct {
	name string
	setting
	// sick: the fault exists before the gateways start, and they never connect.
	sick bool
	// joined: they become peers by a ticket of left's instead of by their files.
	joined bool
	// lasts is about how long it takes, if that is long: such faults are played first.
	lasts time.Duration
	// harm causes the fault; nil if the setting is the fault.
	harm func(*faultLab)
	// left and right are the diagnoses of each side.
	left, right []diagnosis
	// fix does what the fixes say; nil if the fix is a decision instead of a command, rule or
	// setting.
	fix func(f *faultLab, left, right []api.Check)
}

// firewall adds a host firewall like an administrator's: a table with an input chain into which a
// fix can be inserted.
func (w *ward) firewall(rule string) {
	w.t.Helper()
	if _, err := w.host.Run(w.t.Context(), "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; }; add rule inet filter input "+rule); err != nil {
		w.t.Fatal(err)
	}
}

// types runs a command from a fix on a side's host, word by word.
func (w *ward) types(line string) {
	w.t.Helper()
	if out, err := w.host.Run(w.t.Context(), "sh", "-c", line); err != nil {
		w.t.Fatalf("the fix %q at %s: %v\n%s", line, w.name, err, out)
	}
}

// reload makes a side reload its file.
func (w *ward) reload() {
	w.t.Helper()
	w.write()
	if err := w.proc.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
}

// strangers removes the peers from both files.
func strangers(f *faultLab) { f.left.other, f.right.other = api.Peer{}, api.Peer{} }

// join makes the two peers by ticket, each allowed what the other offers.
func (f *faultLab) join() {
	f.t.Helper()
	const services = api.ServiceAuth + "," + api.ServiceAPIServer
	f.right.must("join", f.left.invite("--allow", services), "--allow", services)
	f.left.waitConnected(f.right.name)
	f.right.waitConnected(f.left.name)
}

// start starts both gateways, in the order that the fault needs.
func (i illness) start(f *faultLab) {
	f.t.Helper()
	if i.sick && i.harm != nil {
		i.harm(f)
	}
	f.run(!i.sick && !i.joined)
	if i.joined {
		f.join()
	}
	if i.sick {
		return
	}
	f.healed() // a healthy pair has no fault
	if i.harm != nil {
		i.harm(f)
	}
}

// faultsAtOnce is how many faults are played together, more than other tests: they wait most of the
// time. No other test runs then, so the machine is less busy than it often is.
const faultsAtOnce = 10

func TestFaultsAreFoundAndFixed(t *testing.T) {
	var read readings
	var played sync.WaitGroup
	turns := make(chan struct{}, faultsAtOnce)
	all := illnesses()
	slices.SortStableFunc(all, func(a, b illness) int { return cmp.Compare(b.lasts, a.lasts) })
	for _, i := range all {
		turns <- struct{}{}
		played.Go(func() {
			defer func() { <-turns }()
			t.Run(i.name, func(t *testing.T) {
				f := newFaultLab(t, i.setting)
				i.start(f)
				left, right := f.left.finds(i.left...), f.right.finds(i.right...)
				t.Log("left:", describeChecks(left), "\nright:", describeChecks(right))
				read.take(i.name, f)
				if i.fix != nil {
					i.fix(f, left, right)
					f.healed()
				}
			})
		})
	}
	played.Wait()
	read.differ(t)
}
