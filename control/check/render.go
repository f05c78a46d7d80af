package check

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// maxText bounds foreign text in a sentence, in characters: an error of the standard
// library fits, a certificate with a thousand names does not.
const maxText = 240

// clean makes every text in p safe to show.
func (p Params) clean() Params {
	for _, s := range []*string{&p.Peer, &p.Service, &p.Address, &p.Upstream, &p.ServerName,
		&p.Issuer, &p.Path, &p.NoPath, &p.Version, &p.OwnVersion, &p.Remote, &p.BesideAddress, &p.File, &p.Field, &p.Detail} {
		*s = cleanText(*s)
	}
	p.Endpoints = cleanAll(p.Endpoints)
	p.Names = cleanAll(p.Names)
	p.Authorities = cleanAll(p.Authorities)
	p.GatewayParams, p.ClusterParams, p.DiscoveryParams = p.GatewayParams.clean(), p.ClusterParams.clean(), p.DiscoveryParams.clean()
	return p
}

func cleanAll(in []string) []string {
	var out []string
	for _, s := range in {
		out = append(out, cleanText(s))
	}
	return out
}

// cleanText drops what a terminal would act on (control characters, escape sequences'
// first byte included) and what would reorder the line (bidirectional controls and
// other format characters), and cuts the text to maxText.
func cleanText(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n == maxText {
			b.WriteString("…")
			break
		}
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			r = ' '
		case unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == unicode.ReplacementChar:
			continue
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}

// or gives s, or the other text when there is none.
func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// detail appends an error's text to a sentence.
func detail(sentence string, p Params) string {
	if p.Detail == "" {
		return sentence
	}
	return sentence + ": " + p.Detail
}

// seconds writes a duration as people read it: whole seconds, or milliseconds below.
func seconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// list joins at most four values.
func list(v []string) string {
	const most = 4
	if len(v) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(v[:most], ", "), len(v)-most)
	}
	return strings.Join(v, ", ")
}

// day writes a time for a sentence, in UTC because the two sides may differ.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
