package dnssd

import (
	"net/netip"
	"time"

	"github.com/postern-dev/postern/tunnel/foreign"
	"github.com/postern-dev/postern/tunnel/peer"
)

// Domain is what is known about a browsed domain.
type Domain struct {
	Name string // as configured, in lower case
	// Looked is when it was last browsed completely; zero = never.
	Looked time.Time
	// Instances are sorted by name.
	Instances []Instance
	// Problems are those of the domain itself, not of its instances.
	Problems []Problem
	// DNSSEC is what the resolver says about the list of instances.
	DNSSEC DNSSEC
}

// Instance is a gateway according to a zone. It is usable if it has a key and addresses.
type Instance struct {
	Name   foreign.Text // the label, unescaped: any bytes
	Record string       // the full name
	// Key is zero if no TXT record has a readable key.
	Key          peer.PublicKey
	Capabilities []string
	// Addresses are those that may be dialled, in the order in which to try them.
	Addresses []Address
	// Problems are those of its records, the worst first. It may be usable in spite of them.
	Problems []Problem
	DNSSEC   DNSSEC
	// SeenAt is when the oldest of its records was last confirmed.
	SeenAt time.Time
}

// Usable reports whether there is a key and an address to dial.
func (i Instance) Usable() bool { return !i.Key.IsZero() && len(i.Addresses) > 0 }

// Address is an address of an instance.
type Address struct {
	Addr netip.AddrPort
	// Order is its position by priority and weight, 0 first. The addresses of one SRV record have
	// the same Order.
	Order            uint8
	Priority, Weight uint16
	Target           string // the host name
}

// DNSSEC is what a resolver says about answers.
type DNSSEC uint8

// States of DNSSEC.
const (
	// NotValidated: the resolver does not validate, or has not validated all answers.
	NotValidated DNSSEC = iota
	// Validated: the resolver has validated all answers used. That is as trustworthy as the path
	// to the resolver.
	Validated
	// Bogus: the resolver found a wrong signature and gave no answer.
	Bogus
)

// Kind is the kind of a problem.
type Kind uint8

// Kinds of problems.
const (
	// Unanswered: no server answers, or all fail. The last known records stay in use for a day.
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
	// Record is its type and name: "SRV cloud._postern._udp.example.com".
	Record foreign.Text
	// What is a clause that follows Record: "does not exist".
	What foreign.Text
}

// String describes the problem.
func (p Problem) String() string { return p.Record.String() + " " + p.What.String() }
