package metrics

import "github.com/prometheus/client_golang/prometheus"

// dns is the collector of a standby replica, which only serves DNS.
type dns struct {
	desc    *prometheus.Desc
	queries func() map[string]uint64
}

// NewDNSCollector returns a collector of only [Counters].DNSQueries.
func NewDNSCollector(queries func() map[string]uint64) prometheus.Collector {
	return dns{describe().dnsQueries, queries}
}

// Describe implements prometheus.Collector.
func (d dns) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d dns) Collect(ch chan<- prometheus.Metric) { emitter{ch}.counters(d.desc, d.queries()) }
