// Package clusterdns is a DNS server for the names of services of other clusters, clusterset.local, for
// clusters whose own DNS can forward and nothing else.
//
//	pod ─▶ the cluster's DNS ─ clusterset.local ─▶ Service ─▶ any replica's server ◀─ Zone
//
// It answers for its own zone alone, as the DNS specification of KEP-1645 says, and where that says nothing
// as CoreDNS' plugin kubernetes does: addresses, SRV records of named ports, names of a headless service's
// endpoints, SOA and NS; all others are refused. It asks nobody. What differs from CoreDNS
// is listed in README.md.
//
// # Rules
//
// A name exists when it has records or there are names below it (RFC 8020); no others do, wildcards
// are none. A response is never more than 1,232 bytes by UDP. Queries are answered one after the other,
// so many a second of one address and of all; whoever sends more gets no answer to the rest.
package clusterdns
