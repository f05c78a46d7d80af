package dnssd

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/miekg/dns"
)

// arrange sorts SRV records in the order in which to try them (RFC 2782): by priority, and within
// a priority randomly by weight. Each record gets -ln(u)/weight, where u is a hash of the record
// and the seed, uniform in (0, 1). That is exponentially distributed, and a record has the
// smallest value with probability weight/sum, as RFC 2782 requires. Records of weight 0 come
// last.
func arrange(seed []byte, instance string, records []*dns.SRV) []*dns.SRV {
	type drawn struct {
		*dns.SRV
		lot float64
	}
	list := make([]drawn, 0, len(records))
	for _, r := range records {
		list = append(list, drawn{r, lot(seed, instance, r)})
	}
	slices.SortStableFunc(list, func(a, b drawn) int {
		return cmp.Or(
			cmp.Compare(a.Priority, b.Priority),
			cmp.Compare(unweighted(a.Weight), unweighted(b.Weight)),
			cmp.Compare(a.lot, b.lot),
			cmp.Compare(fold(a.Target), fold(b.Target)),
			cmp.Compare(a.Port, b.Port),
		)
	})
	out := make([]*dns.SRV, 0, len(list))
	for _, d := range list {
		out = append(out, d.SRV)
	}
	return out
}

func unweighted(weight uint16) int {
	if weight == 0 {
		return 1
	}
	return 0
}

func lot(seed []byte, instance string, r *dns.SRV) float64 {
	h := hmac.New(sha256.New, seed)
	fmt.Fprintf(h, "%s %s %d", instance, fold(r.Target), r.Port)
	u := (float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) + 0.5) / (1 << 53)
	return -math.Log(u) / float64(max(r.Weight, 1))
}
