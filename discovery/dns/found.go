package dnssd

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Domain is what is known about a domain that is browsed.
type Domain struct {
	Name string // as configured, in lower case
	// Looked is when it was last looked through to the end; zero = not yet.
	Looked time.Time
	// Instances are in the order of their names.
	Instances []Instance
	// Problems are those of the domain itself, not of an instance.
	Problems []Problem
	// DNSSEC is what the resolver says of the list of instances.
	DNSSEC DNSSEC
}

// Instance is a gateway as a zone has it. It is usable when it has a key and addresses.
type Instance struct {
	Name   foreign.Text // the label, unescaped: any bytes
	Record string       // the full name
	// Key is zero where no TXT record has one that can be read.
	Key          peer.PublicKey
	Capabilities []string
	// Addresses are those that may be dialled, in the order in which they are to be tried.
	Addresses []Address
	// Problems name what is wrong with its records, the worst first. It may be usable in
	// spite of them.
	Problems []Problem
	DNSSEC   DNSSEC
	// SeenAt is when the oldest of its records was last confirmed.
	SeenAt time.Time
}

// Usable reports whether there is a key and somewhere to dial.
func (i Instance) Usable() bool { return !i.Key.IsZero() && len(i.Addresses) > 0 }

// Address is one of an instance's.
type Address struct {
	Addr netip.AddrPort
	// Order is its place by priority and weight, 0 first. The addresses of one SRV record
	// have the same.
	Order            uint8
	Priority, Weight uint16
	Target           string // the host name
}

// DNSSEC is what a resolver says of answers.
type DNSSEC uint8

// States of DNSSEC.
const (
	// NotValidated: the resolver has not validated all of it, or does not validate.
	NotValidated DNSSEC = iota
	// Validated: it has validated all that was used. Its word is as good as the way to it.
	Validated
	// Bogus: it found a signature to be wrong and gave no answer.
	Bogus
)

// Kind tells problems apart.
type Kind uint8

// Kinds of problems.
const (
	// Unanswered: no server answers, or all fail. What was known holds for a day.
	Unanswered Kind = iota + 1
	// Nothing: the domain has no gateways.
	Nothing
	// Bad: records that cannot be used.
	Bad
	// Forged: DNSSEC validation failed.
	Forged
)

// Problem is something wrong with a record.
type Problem struct {
	Kind Kind
	// Record is its type and name, as "SRV cloud._postern._udp.example.com".
	Record foreign.Text
	// What is a clause that follows upon it: "does not exist".
	What foreign.Text
}

// String is the problem in words.
func (p Problem) String() string { return p.Record.String() + " " + p.What.String() }
