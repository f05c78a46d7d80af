package catalogue

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/postern-dev/postern/control/api"
	"github.com/postern-dev/postern/tunnel/foreign"
)

var (
	errType    = errors.New("has another type than it should")
	errMany    = fmt.Errorf("are more than %d", maxList)
	errAddress = errors.New("is no address")
	errHolds   = errors.New("hold something that is no address")
)

// kinds are the forms of shared parameters, by the words of the tag.
var kinds = sync.OnceValue(func() map[string]kind {
	host, authority := fit(foreign.Host.Max(maxText)), fit(foreign.Authority.Max(maxText))
	return map[string]kind{
		// Texts. An invalid one becomes [foreign.Unfit] or, if it is a word, "".
		"place":     textKind(place),
		"host":      textKind(host),
		"authority": textKind(authority),
		"version":   textKind(version),
		"failure":   textKind(word(FailureName, FailureRefused, FailureTimeout, FailureRoute, FailureURL, FailureMissing, FailureExpired)),
		"beside":    textKind(word(BesideWorks, BesideFails)),
		"code":      textKind(knownCode),
		// Lists of at most maxList.
		"names":       listKind(func(s string) (string, bool) { return host(s), true }),
		"authorities": listKind(func(s string) (string, bool) { return authority(s), true }),
		"addresses":   listKind(address),
		"hosts":       listKind(hostAddress),
		// An IP address with a port and without a zone.
		"address": kindOf(func(s string, _ time.Time) string { a, _ := address(s); return a }, func(s string) (string, error) {
			a, ok := address(s)
			if !ok && s != "" {
				return "", errAddress
			}
			return a, nil
		}, same[string]),
		// Numbers.
		"count": numberKind(maxCount, "is out of bounds"),
		"size":  numberKind(maxSize, "is no size of a packet"),
		"status": kindOf(func(n int, _ time.Time) int { return status(n) }, func(n int) (int, error) {
			if n != 0 && status(n) == 0 {
				return 0, errors.New("is none of HTTP")
			}
			return n, nil
		}, same[int]),
		"true": kindOf(same[bool], accept[bool], same[bool]),
		// Durations in seconds, and the time since something happened.
		"age":  secondsKind(maxAge, time.Second),
		"wait": secondsKind(maxWait, time.Millisecond),
		"ago": kindOf(func(t, now time.Time) *float64 {
			if t.IsZero() {
				return nil
			}
			s := min(max(now.Sub(t), 0), maxAge).Round(time.Second).Seconds()
			return &s
		}, func(s *float64) (*float64, error) {
			if s == nil {
				return nil, nil
			}
			_, err := within(*s, maxAge)
			return s, err
		}, func(s *float64, written time.Time) time.Time {
			if s == nil {
				return time.Time{}
			}
			return written.Add(-time.Duration(*s * float64(time.Second)))
		}),
		// Times of any clock.
		"moment":     timeKind(0),
		"day":        timeKind(time.Second),
		"nat":        kindOf(func(n NAT, _ time.Time) NAT { return n.shared() }, func(n NAT) (NAT, error) { return n.shared(), nil }, same[NAT]),
		"candidates": kindOf(sharedCandidates, parsedCandidates, same[[]Candidate]),
	}
})

func same[T any](v T, _ time.Time) T { return v }

// knownCode returns a code of the catalogue, and "" for any other text.
func knownCode(s string) string {
	if _, is := load().find(Code(s)); !is {
		return ""
	}
	return s
}

func accept[T any](v T) (T, error) { return v, nil }

func textKind(form func(string) string) kind {
	return kindOf(func(s string, _ time.Time) string { return form(s) }, func(s string) (string, error) { return form(s), nil }, same[string])
}

// fit returns the text in a form, or [foreign.Unfit].
func fit(f foreign.Form) func(string) string {
	return func(s string) string { return foreign.Of(s).As(f) }
}

// place accepts a host name or IP address with a port, else returns [foreign.Unfit].
func place(s string) string {
	if a, ok := address(s); ok {
		return a
	}
	return foreign.Of(s).As(foreign.Host.Max(maxText))
}

// address accepts an IP address with a port. It rejects zones, which are free text and mean nothing
// elsewhere.
func address(s string) (string, bool) {
	a, err := netip.ParseAddrPort(s)
	if err != nil || a.Addr().Zone() != "" {
		return "", false
	}
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()).String(), true
}

// hostAddress accepts an IP address without a port or zone.
func hostAddress(s string) (string, bool) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return "", false
	}
	return a.Unmap().String(), true
}

var versionForm = regexp.MustCompile(`^[0-9]{1,5}\.[0-9]{1,5}$`)

// version accepts major.minor, else returns "".
func version(s string) string {
	if !versionForm.MatchString(s) {
		return ""
	}
	return s
}

// word accepts one of a list, else returns "".
func word[T ~string](words ...T) func(string) string {
	return func(s string) string {
		if !slices.Contains(words, T(s)) {
			return ""
		}
		return s
	}
}

// listKind is a list of values of a form. It omits own values that do not fit.
func listKind(form func(string) (string, bool)) kind {
	read := func(list []string) (out []string) {
		for _, s := range list {
			if v, ok := form(s); ok && len(out) < maxList {
				out = append(out, v)
			}
		}
		return out
	}
	return kindOf(func(list []string, _ time.Time) []string { return read(list) }, func(list []string) ([]string, error) {
		if len(list) > maxList {
			return nil, errMany
		}
		out := read(list)
		if len(out) != len(list) {
			return nil, errHolds
		}
		return out, nil
	}, same[[]string])
}

func numberKind(most int, otherwise string) kind {
	bounded := func(n int) int { return min(max(n, 0), most) }
	return kindOf(func(n int, _ time.Time) int { return bounded(n) }, func(n int) (int, error) {
		if n != bounded(n) {
			return 0, errors.New(otherwise)
		}
		return n, nil
	}, same[int])
}

// status accepts an HTTP status code, else returns 0.
func status(n int) int {
	if n < 100 || n > 599 {
		return 0
	}
	return n
}

// secondsKind is a duration in seconds; own values are rounded.
func secondsKind(most, unit time.Duration) kind {
	return kindOf(func(d time.Duration, _ time.Time) float64 { return min(max(d, 0), most).Round(unit).Seconds() },
		func(s float64) (float64, error) { return within(s, most) },
		func(s float64, _ time.Time) time.Duration {
			return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
		})
}

func within(s float64, most time.Duration) (float64, error) {
	if s < 0 || s > most.Seconds() { // JSON has no NaN
		return 0, errors.New("is no time that can have passed")
	}
	return s, nil
}

// timeKind is a time that a clock may show; small machines start at 1970. A handshake's timestamp
// and a certificate's dates are whatever their creator chose, and JSON has no years of five digits.
// Own values that are out of bounds are omitted.
func timeKind(unit time.Duration) kind {
	possible := func(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 10000 }
	return kindOf(func(t, _ time.Time) time.Time {
		if !possible(t) {
			return time.Time{}
		}
		return t.UTC().Truncate(unit)
	}, func(t time.Time) (time.Time, error) {
		if !t.IsZero() && !possible(t) {
			return t, errors.New("is no time of these days")
		}
		return t.UTC(), nil
	}, same[time.Time])
}

// behaviour returns one of RFC 4787's words for a NAT, unknown for others, and "" for "".
func behaviour(s string) string {
	if s == "" || word("none", "endpoint-independent", "address-dependent", "address-and-port-dependent", "endpoint-dependent")(s) != "" {
		return s
	}
	return "unknown"
}

func (n NAT) shared() NAT { return NAT{behaviour(n.Mapping), behaviour(n.Filtering)} }

// Known returns the NAT in those words, with unknown for missing ones.
func (n NAT) Known() NAT { return NAT{or(n.Mapping, "unknown"), or(n.Filtering, "unknown")}.shared() }

// sharedCandidates returns the candidates with an address, without our reasons and relays.
func sharedCandidates(list []Candidate, _ time.Time) (out []Candidate) {
	for _, c := range list {
		if a, ok := address(c.Address); ok && len(out) < maxList {
			out = append(out, Candidate{Address: a, Source: source(c.Source), State: state(c.State)})
		}
	}
	return out
}

func parsedCandidates(list []Candidate) ([]Candidate, error) {
	if len(list) > maxList {
		return nil, errMany
	}
	out := sharedCandidates(list, time.Time{})
	if len(out) != len(list) {
		return nil, errHolds
	}
	return out, nil
}

// source accepts a source of candidates, and state one of their states as package path names them;
// else "".
var (
	source = word(api.SourceAdvertised, api.SourceService, api.SourcePortmap, api.SourceLAN, api.SourceDNS,
		api.SourceHost, api.SourceSTUN, api.SourcePeer, api.SourceRelay)
	state = word("frozen", "probing", "valid", "selected", "suspect", "failed")
)
