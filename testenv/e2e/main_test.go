//go:build linux && e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// atOnce is how many of the tests with t.Parallel run together: most of their time they wait for
// a gateway to notice something. Go's default is the number of CPUs.
const atOnce = "5"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(m.Run())
}
