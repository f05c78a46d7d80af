package tunnel

import (
	"os"
	"strings"
	"testing"
)

func TestSmallPagesAreUsed(t *testing.T) {
	if err := UseSmallPages(); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(status), "THP_enabled:\t1") {
		t.Errorf("the kernel still gives huge pages:\n%s", status)
	}
}
