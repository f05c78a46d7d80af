package api

import "time"

// Directions of a check: outbound is measured here, inbound is what a peer reports about reaching
// this gateway, and own is about this gateway alone.
const (
	DirectionOutbound = "outbound"
	DirectionInbound  = "inbound"
	DirectionOwn      = "own"
)

// CheckReport is the result of `postern check` (kind: CheckReport).
type CheckReport struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Gateway    string       `json:"gateway"`
	At         time.Time    `json:"at"`
	Summary    CheckSummary `json:"summary"`
	// Checks are sorted: this gateway's own first, then by peer: outbound before inbound.
	Checks []Check `json:"checks"`
}

// CheckSummary counts verdicts. A check that depends on another failing check counts as unknown, so
// that errors and warnings are what needs a fix.
type CheckSummary struct {
	OK      int `json:"ok"`
	Warning int `json:"warning"`
	Error   int `json:"error"`
	Unknown int `json:"unknown"`
	Off     int `json:"off"`
}

// Check is the result of one check.
type Check struct {
	// Name is unique within its peer: auth, apiServer, gateway, mtu, exposure, …
	Name string `json:"name"`
	// Peer is empty for checks of this gateway alone.
	Peer string `json:"peer,omitempty"`
	// Target is auth, apiServer or gateway.
	Target    string `json:"target"`
	Direction string `json:"direction"`
	Verdict
	// DependsOn names the failing check whose fix also fixes this one: "NAME" of the same peer, or
	// "own/NAME".
	DependsOn string       `json:"dependsOn,omitempty"`
	Stages    []CheckStage `json:"stages"`
}

// CheckStage is one step of a check.
type CheckStage struct {
	Stage   string  `json:"stage"`
	Verdict Outcome `json:"verdict"`
	Seconds float64 `json:"seconds"`
	Detail  string  `json:"detail,omitempty"`
	// Bytes is how much a stage of a throughput check transferred in Seconds.
	Bytes int64 `json:"bytes,omitempty"`
	// Via is direct or in-band.
	Via string `json:"via,omitempty"`
}

// CheckRequest asks for checks to run now.
type CheckRequest struct {
	// Peer limits them to one peer; empty checks this gateway and all its peers.
	Peer string `json:"peer,omitempty"`
	// Throughput also measures the throughput of the path to that peer: some 2 s, and at most 64
	// MB.
	Throughput bool `json:"throughput,omitempty"`
}

// LogRecord is one line of the gateway's recent log.
type LogRecord struct {
	// Seq increases by one per record. A reader asks for records after the last one it has.
	Seq     uint64    `json:"seq"`
	Time    time.Time `json:"time"`
	Level   string    `json:"level"` // DEBUG, INFO, WARN or ERROR
	Message string    `json:"message"`
	// Attrs are key=value, in the order in which they were logged.
	Attrs []LogAttr `json:"attrs,omitempty"`
}

// LogAttr is one attribute of a record.
type LogAttr struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Log is the tail of the gateway's log (kind: Log).
type Log struct {
	Kind    string      `json:"kind"`
	Records []LogRecord `json:"records"`
	// Alarms are all alarms since the start, whether or not their records are still there.
	Alarms []Alarm `json:"alarms,omitempty"`
}

// EventAlarm is the event of an alarm that an operator has to look at whatever the checks say: a
// second key tried a ticket.
const EventAlarm = "alarm"

// Alarm is a warning with a code, once for each code and subject.
type Alarm struct {
	Code string `json:"code"`
	// Subject is what the alarm is about, such as "ticket 0123456789abcdef" or "peer edge".
	// "others" combines subjects beyond the limit.
	Subject string `json:"subject"`
	// Event is what happened, if the audit log has a record of it.
	Event string    `json:"event,omitempty"`
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count uint64    `json:"count"`
	// Level, Message and Attrs are those of the first record.
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Attrs   []LogAttr `json:"attrs,omitempty"`
}
