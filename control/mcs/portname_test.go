package mcs_test

import (
	"testing"

	"github.com/postern-dev/postern/control/mcs"
)

func TestNamesOfPorts(t *testing.T) {
	n := mcs.Name{Namespace: "shop", Name: "db"}
	for want, got := range map[string]string{
		"shop/db:80":        mcs.PortName(n, mcs.Port{Protocol: "TCP", Port: 80}, ""),
		"shop/db:53/UDP":    mcs.PortName(n, mcs.Port{Protocol: "UDP", Port: 53}, ""),
		"shop/db:5432@db-0": mcs.PortName(n, mcs.Port{Protocol: "TCP", Port: 5432}, "db-0"),
	} {
		if parsed, _, err := mcs.ParsePortName(want); got != want || mcs.NameOfPort(got) != n || parsed != n || err != nil {
			t.Errorf("got %s of %v, want %s: %v", got, parsed, want, err)
		}
	}
	for _, s := range []string{"", "db", "shop/db", "shop/db:", "shop/db:0", "shop/db:080", "shop/db:80/TCP", "shop/db:80-81", "Shop/db:80",
		"shop/db:80@", "shop/db:80@-", "shop/*:80", "shop/a/b:80", "shop/db:80/SCTP", "shop/db:65536", "shop/db@db-0:80"} {
		if n, p, err := mcs.ParsePortName(s); err == nil {
			t.Errorf("%q is read as %v, %v", s, n, p)
		}
	}
}
