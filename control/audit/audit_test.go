package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-dev/postern/tunnel/peer"
)

func TestRecordIsOneStructuredLine(t *testing.T) {
	for _, c := range []struct {
		event Event
		level string
	}{
		{Invite, "INFO"}, {Issue, "INFO"}, {Grant, "INFO"},
		{Refuse, "WARN"}, {Alarm, "WARN"}, {Burn, "WARN"},
	} {
		t.Run(string(c.event), func(t *testing.T) {
			var out bytes.Buffer
			log := New(slog.New(slog.NewJSONHandler(&out, nil)))
			key := peer.PublicKey{1}
			log.Record(context.Background(), c.event,
				Peer("edge"), PublicKey(key), Ticket("0011223344556677"), Services([]string{"auth"}),
				Reason("because"), Code(CodeTicketAlarm), NotAfter(time.Unix(60, 0)), ExpiresAt(time.Unix(61, 0)))
			if n := bytes.Count(out.Bytes(), []byte("\n")); n != 1 {
				t.Fatalf("wrote %d lines, want 1: %s", n, out.String())
			}
			var got map[string]any
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "time")
			want := map[string]any{
				"level": c.level, "msg": Message, "event": string(c.event), "peer": "edge",
				"publicKey": key.String(), "ticket": "0011223344556677", "services": []any{"auth"},
				"reason": "because", "code": "PST0210",
				"notAfter": "1970-01-01T00:01:00Z", "expiresAt": "1970-01-01T00:01:01Z",
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("record (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNilLogDiscards(t *testing.T) {
	if l := New(nil); l != nil {
		t.Errorf("New(nil) = %v, want nil", l)
	}
	New(nil).Record(context.Background(), Invite, Peer("edge")) // must not panic
}
