// Package audit writes an audit record of each decision about access: one structured log record
// for each event, with the same keys regardless of its source. So a collector can select the
// records in the gateway's log (`msg == "audit"`), and a person can find out who admitted a peer,
// when, and with which grants.
//
// Events that others can cause without limit are bounded by the log handler (package logtail),
// which counts the records that it leaves out.
//
// A record contains no secrets: keys are public keys, tickets are ticket IDs, certificates are
// serial numbers.
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

// Event names the kind of a decision. Names are stable.
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
	// Expire: a ticket expired unredeemed.
	Expire Event = "expire"
	// Burn: a ticket was disabled after too many failed redemptions.
	Burn Event = "burn"
	// Grant: a peer's grants here were set or changed.
	Grant Event = "grant"
	// Issue: an identity for the API server was issued to a peer.
	Issue Event = "issue"
	// Revoke: a peer lost the right to further identities.
	Revoke Event = "revoke"
	// Remove: a peer was removed.
	Remove Event = "remove"
	// Connect and Disconnect: a flow through the tunnel began or ended.
	Connect    Event = "connect"
	Disconnect Event = "disconnect"
	// Reload: the configuration was reloaded.
	Reload Event = "reload"
	// Rotate: a key of the gateway or of a peer replaces another.
	Rotate Event = "rotate"
	// Refuse: someone requested something without permission.
	Refuse Event = "refuse"
	// Alarm: a second key tried a ticket; an operator should look.
	Alarm Event = api.EventAlarm
)

// Frequent reports whether others can cause an event as often as they send requests. If there are
// too many of them, such events may be left out of the log, and are counted instead. All other
// events grant or change something: each results from an operator, a ticket, or a request with its
// own rate limit in package auth ([Issue] and [Rotate]), and is always recorded. Package logtail
// keeps the first record of each [Alarm].
func (e Event) Frequent() bool {
	return e == Refuse || e == Connect || e == Disconnect || e == Alarm
}

// CodeTicketAlarm is the code of an [Alarm] record.
const CodeTicketAlarm = "PST0210"

// Keys of a record's attributes. A record has KeyEvent and those that apply.
const (
	KeyEvent     = "event"
	KeyPeer      = "peer"
	KeyPublicKey = "publicKey"
	KeyAddress   = "address"
	KeyTicket    = "ticket"
	KeyServices  = "services"
	KeyService   = "service"
	KeyRequest   = "request"
	KeyReason    = "reason"
	KeyCode      = "code"
	KeySerial    = "serial"
	KeyNotAfter  = "notAfter"
	KeyExpiresAt = "expiresAt"
	KeyCount     = "count"
	// KeyUnrecorded is the number of similar records that were left out since the last one
	// because there were too many (package logtail).
	KeyUnrecorded = "unrecorded"
)

// Log writes audit records. A nil *Log discards them. It is safe for concurrent use.
type Log struct{ logger *slog.Logger }

// New returns a log that writes to logger; nil discards.
func New(logger *slog.Logger) *Log {
	if logger == nil {
		return nil
	}
	return &Log{logger: logger}
}

// Record writes an event: refusals and alarms as warnings, others as information.
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

// Peer is the local name of a peer.
func Peer(name string) slog.Attr { return slog.String(KeyPeer, name) }

// PublicKey is a peer's key.
func PublicKey(k peer.PublicKey) slog.Attr { return slog.String(KeyPublicKey, k.String()) }

// Ticket is a ticket's ID, which is not secret.
func Ticket(id string) slog.Attr { return slog.String(KeyTicket, id) }

// Services are the names of the granted services.
func Services(names []string) slog.Attr { return slog.Any(KeyServices, names) }

// Reason is the reason, in a sentence.
func Reason(text string) slog.Attr { return slog.String(KeyReason, text) }

// Code is a stable PST code.
func Code(code string) slog.Attr { return slog.String(KeyCode, code) }

// NotAfter is the end of a certificate's validity.
func NotAfter(t time.Time) slog.Attr { return slog.Time(KeyNotAfter, t.UTC()) }

// ExpiresAt is the end of a ticket's validity.
func ExpiresAt(t time.Time) slog.Attr { return slog.Time(KeyExpiresAt, t.UTC()) }
