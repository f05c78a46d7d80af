// Package audit writes the record of every decision about who may reach what: one
// structured log record an event, with the same keys wherever it comes from, so that
// a collector can pick them out of the gateway's log (`msg == "audit"`) and a person
// can answer "who let this peer in, when, and what was it given?".
//
// What someone can cause as often as he likes is bounded by the handler that the records
// go through, as all of a gateway's log is (package logtail): what is left out is counted.
//
// A record says what was decided, never a secret: keys are public keys, tickets are
// ticket ids, certificates are serial numbers.
package audit

import (
	"context"
	"log/slog"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Message is the log message of every audit record.
const Message = "audit"

// Event names what was decided. Names are stable.
type Event string

// Events.
const (
	// Invite: a ticket was made.
	Invite Event = "invite"
	// Redeem: a joiner redeemed a ticket in-band.
	Redeem Event = "redeem"
	// Accept: an operator accepted a joiner's reply.
	Accept Event = "accept"
	// Approve: an operator confirmed a pending peer's key.
	Approve Event = "approve"
	// Expire: a ticket's time ran out unredeemed.
	Expire Event = "expire"
	// Burn: a ticket was given up after too many failed redemptions.
	Burn Event = "burn"
	// Grant: what a peer may reach here was set or changed.
	Grant Event = "grant"
	// Issue: a peer was given an identity for the API server.
	Issue Event = "issue"
	// Revoke: a peer lost the right to further identities.
	Revoke Event = "revoke"
	// Remove: a peer was removed.
	Remove Event = "remove"
	// Connect and Disconnect: a flow through the tunnel began or ended.
	Connect    Event = "connect"
	Disconnect Event = "disconnect"
	// Reload: the configuration was read again.
	Reload Event = "reload"
	// Rotate: a gateway's key, or a peer's, takes the place of another.
	Rotate Event = "rotate"
	// Refuse: someone asked for what is not theirs.
	Refuse Event = "refuse"
	// Alarm: a ticket was tried by a second key; an operator should look.
	Alarm Event = api.EventAlarm
)

// Frequent reports whether an event comes as often as someone asks for something. Such
// events may be left out of the log when there are too many, and are counted then. All others
// grant or change something: each follows from an operator, from a ticket, or from a request
// with a rate of its own ([Issue] and [Rotate]: 8 in a row and one every 10 s for a peer), and
// each is recorded. An [Alarm] is told apart by package logtail, which keeps it.
func (e Event) Frequent() bool {
	return e == Refuse || e == Connect || e == Disconnect || e == Alarm
}

// CodeTicketAlarm is the code of an [Alarm] record.
const CodeTicketAlarm = "PST0210"

// Keys of a record's attributes. A record has KeyEvent and those that apply.
const (
	KeyEvent       = "event"
	KeyPeer        = "peer"
	KeyPublicKey   = "publicKey"
	KeyFingerprint = "fingerprint"
	KeyAddress     = "address"
	KeyTicket      = "ticket"
	KeyServices    = "services"
	KeyService     = "service"
	KeyRequest     = "request"
	KeyReason      = "reason"
	KeyCode        = "code"
	KeySerial      = "serial"
	KeyNotAfter    = "notAfter"
	KeyExpiresAt   = "expiresAt"
	KeyCount       = "count"
	// KeyUnrecorded counts records like this one that were left out since the last, because
	// there were too many (package logtail).
	KeyUnrecorded = "unrecorded"
)

// Log writes audit records. A nil *Log discards them. It is safe for concurrent use.
type Log struct{ logger *slog.Logger }

// New makes a log that writes through logger; nil discards.
func New(logger *slog.Logger) *Log {
	if logger == nil {
		return nil
	}
	return &Log{logger: logger}
}

// Record writes one event. Refusals and alarms are warnings, the rest information.
func (l *Log) Record(ctx context.Context, event Event, attrs ...slog.Attr) {
	if l == nil {
		return
	}
	level := slog.LevelInfo
	if event == Refuse || event == Alarm || event == Burn {
		level = slog.LevelWarn
	}
	all := make([]slog.Attr, 0, len(attrs)+1)
	all = append(all, slog.String(KeyEvent, string(event)))
	all = append(all, attrs...)
	l.logger.LogAttrs(ctx, level, Message, all...)
}

// Peer is the name by which a peer is known here.
func Peer(name string) slog.Attr { return slog.String(KeyPeer, name) }

// PublicKey is a peer's key.
func PublicKey(k peer.PublicKey) slog.Attr { return slog.String(KeyPublicKey, k.String()) }

// Ticket is a ticket's id, which is no secret.
func Ticket(id string) slog.Attr { return slog.String(KeyTicket, id) }

// Services are the names of what was granted.
func Services(names []string) slog.Attr { return slog.Any(KeyServices, names) }

// Reason says why, in a sentence.
func Reason(text string) slog.Attr { return slog.String(KeyReason, text) }

// Code is a stable PST code.
func Code(code string) slog.Attr { return slog.String(KeyCode, code) }

// NotAfter is the end of a certificate's validity.
func NotAfter(t time.Time) slog.Attr { return slog.Time(KeyNotAfter, t.UTC()) }

// ExpiresAt is the end of a ticket's validity.
func ExpiresAt(t time.Time) slog.Attr { return slog.Time(KeyExpiresAt, t.UTC()) }
