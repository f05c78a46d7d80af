package check

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/control/catalogue"
	"github.com/postern-dev/postern/control/verdict"
)

func TestAStateThatIsNotKeptIsFound(t *testing.T) {
	now := time.Now()
	var k kept
	try := func(restored []string, err error) func() ([]string, error) {
		return func() ([]string, error) { return restored, err }
	}
	for _, c := range []struct {
		name string
		try  func() ([]string, error)
		at   time.Duration
		is   api.Outcome
		code catalogue.Code
		fix  string
	}{
		{"well", try(nil, nil), 0, "", "", ""},
		{"a file was gone", try([]string{"/var/lib/postern/peers.json"}, nil), 0, api.Warning, catalogue.StateDeleted, ""},
		{"and is told of", try(nil, nil), lossTold - time.Minute, api.Warning, catalogue.StateDeleted, ""},
		{"for a while", try(nil, nil), lossTold, "", "", ""},
		{"full", try(nil, fmt.Errorf("write: %w", syscall.ENOSPC)), lossTold, api.Error, catalogue.StateUnwritable, "free some space"},
		{"read-only", try(nil, fmt.Errorf("write: %w", syscall.EROFS)), lossTold, api.Error, catalogue.StateUnwritable, "mount it writable"},
		{"another reason", try(nil, errors.New("no medium")), lossTold, api.Error, catalogue.StateUnwritable, "create it again"},
		{"free again", try(nil, nil), lossTold, "", "", ""},
	} {
		k = k.tried(c.try, now.Add(c.at))
		found := k.findings(now.Add(c.at))
		if c.code == "" {
			if len(found) != 0 {
				t.Errorf("%s: got %+v", c.name, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Outcome != c.is || found[0].Code != c.code || found[0].Verdict().Cause == "" || !strings.Contains(found[0].Verdict().Fix, c.fix) {
			t.Errorf("%s: got %+v, want %s %s", c.name, found, c.is, c.code)
		}
	}
}

// A disk that is briefly busy is ok. One that hangs is reported as soon as that is certain, and no
// check waits for it.
func TestADiskThatHangsIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := NewRunner(Options{Own: func() Own { return Own{} }, State: func() ([]string, error) { <-release; return nil, nil }})
		defer r.Close()
		hangs := func() bool {
			began := time.Now()
			r.checkOwn(t.Context(), true)
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("a check took %s", took)
			}
			f, found := verdict.Find(r.Own(), verdict.Own(NameKept))
			return found && f.Code == catalogue.StateUnwritable
		}
		if hangs() {
			t.Error("it is told of at once")
		}
		time.Sleep(stateHangs)
		if !hangs() {
			t.Error("it is not told of")
		}
		close(release)
		synctest.Wait()
		if hangs() {
			t.Error("it is told of though the disk answers")
		}
	})
}
