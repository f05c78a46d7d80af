//go:build linux && e2e

package e2e

import (
	"syscall"
	"testing"

	"github.com/postern-dev/postern/control/api"
)

// illness is a fault that is made for real, what each side must find, and how what is
// printed as the fix is done.
type illness struct {
	name string
	setting
	// sick: the fault is there before the gateways are started, and the two never meet.
	sick bool
	// joined: they are made peers by a ticket of left's, and not by their files.
	joined bool
	// harm makes the fault; nil where the setting is the fault.
	harm func(*faultLab)
	// left and right are what each side finds.
	left, right []diagnosis
	// fix does what the fixes say; nil where the fix is somebody's decision, not a
	// command, rule or setting.
	fix func(f *faultLab, left, right []api.Check)
}

// firewall is a host's own, as administrators have it: a table into whose input chain a
// fix can be inserted.
func (w *ward) firewall(rule string) {
	w.t.Helper()
	if _, err := w.host.Run(w.t.Context(), "nft", "add table inet filter; add chain inet filter input { type filter hook input priority 0; }; add rule inet filter input "+rule); err != nil {
		w.t.Fatal(err)
	}
}

// types runs a command that a fix told of on a side's host, word by word.
func (w *ward) types(line string) {
	w.t.Helper()
	if out, err := w.host.Run(w.t.Context(), "sh", "-c", line); err != nil {
		w.t.Fatalf("the fix %q at %s: %v\n%s", line, w.name, err, out)
	}
}

// reload has a side read its file again.
func (w *ward) reload() {
	w.t.Helper()
	w.write()
	if err := w.proc.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
}

// strangers takes the peers out of both files.
func strangers(f *faultLab) { f.left.other, f.right.other = api.Peer{}, api.Peer{} }

// join makes the two peers by ticket, each allowed what the other offers.
func (f *faultLab) join() {
	f.t.Helper()
	const services = api.ServiceAuth + "," + api.ServiceAPIServer
	f.right.must("join", f.left.invite("--allow", services), "--allow", services)
	f.left.waitConnected(f.right.name)
	f.right.waitConnected(f.left.name)
}

// start runs both gateways, in the order that the fault needs.
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

func TestFaultsAreFoundAndFixed(t *testing.T) {
	t.Parallel()
	var read readings
	t.Run("fault", func(t *testing.T) {
		for _, i := range illnesses() {
			t.Run(i.name, func(t *testing.T) {
				t.Parallel()
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
		}
	})
	read.differ(t)
}
