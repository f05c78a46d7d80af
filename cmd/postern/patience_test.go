package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// What a command waits for is shown once that takes a while, and removed afterwards.
func TestAWaitIsExplained(t *testing.T) {
	for took, want := range map[time.Duration]string{
		unexplained / 2: "",
		unexplained * 2: "Waiting …\r\x1b[K",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			done := shown(&out, "Waiting …", unexplained)
			time.Sleep(took)
			done()
			time.Sleep(unexplained)
			if got := out.String(); got != want {
				t.Errorf("after %s: %q, want %q", took, got, want)
			}
		})
	}
}
