package wake

import "testing"

func TestSignal(t *testing.T) {
	s := New()
	if len(s) != 0 {
		t.Error("a new signal is set")
	}
	for range 2 {
		s.Set()
		s.Set()
		<-s
		if len(s) != 0 {
			t.Error("the signal is set again, want one turn for two requests")
		}
	}
}
