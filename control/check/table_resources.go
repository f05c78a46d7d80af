package check

import "fmt"

// mtuEntries are the codes of packet sizes.
func mtuEntries() []Entry {
	return []Entry{
		{PathMTUSmall, "large packets do not cross the way whole", mtuCause, mtuFix},
	}
}

func mtuCause(p Params) string {
	link := ""
	if p.LinkMTU > 0 {
		link = fmt.Sprintf(", though the overlay's MTU here is %d", p.LinkMTU)
	}
	least := ""
	if p.MTU > 0 {
		least = fmt.Sprintf(", those of %d bytes do%s", p.MTU, link)
	}
	size := "large packets"
	if p.Size > 0 {
		size = fmt.Sprintf("packets of %d bytes", p.Size)
	}
	if p.Sent > 0 {
		return fmt.Sprintf("%s inside the tunnel to %s or back vanish (%d of %d pings lost), those of %d pass%s: a link on the way is narrower, and neither its ICMP errors nor fragments get through",
			size, p.owner(), p.Lost, p.Sent, p.MTU, link)
	}
	return fmt.Sprintf("%s inside the tunnel%s to %s do not cross the way whole%s: a link on the way is narrower than that of %s, and larger packets travel in fragments or vanish",
		size, p.ofClient(), p.owner(), least, p.client())
}

// mtuFix: the overlay's MTU is never below 1280.
func mtuFix(p Params) string {
	icmp := "on the firewalls in between let ICMP type 3 code 4 and ICMPv6 type 2 through: `nft insert rule inet filter forward icmp type destination-unreachable accept` " +
		"and `nft insert rule inet filter forward icmpv6 type packet-too-big accept`"
	wider := fmt.Sprintf("give the link on the way an MTU of %d (`ip link set dev DEVICE mtu %d`), or let UDP fragments through there", leastMTU+80, leastMTU+80)
	switch {
	case p.LinkMTU > 0 && p.LinkMTU <= leastMTU:
		return fmt.Sprintf("spec.mtu is at its least (%d): %s", leastMTU, wider)
	case p.Sent > 0 && p.MTU < leastMTU:
		return fmt.Sprintf("%s; spec.mtu cannot be less than %d, and packets of that size vanish as well", wider, leastMTU)
	}
	return fmt.Sprintf("set spec.mtu: %d on both gateways and start them again; %s", max(leastMTU, p.MTU), icmp)
}

// resourceEntries are the codes of what the gateway may use.
func resourceEntries() []Entry {
	return []Entry{
		{PeerFlowLimit, "a peer has too many open connections", func(p Params) string {
			return fmt.Sprintf("%s has %d connections open through this gateway, the most it may have; further ones are refused", p.Peer, p.Limit)
		}, func(p Params) string {
			return fmt.Sprintf("find what opens them: `postern status %s -o json` lists its flows; `postern peer remove %s` ends them all", p.Peer, p.Peer)
		}},
		{PeerHalfOpenLimit, "a peer has too many connections being opened", func(p Params) string {
			return fmt.Sprintf("%s has %d connections that are being opened, the most it may have; further ones are refused", p.Peer, p.Limit)
		}, func(p Params) string {
			return fmt.Sprintf("see whether the upstream of %s answers slowly (warnings PST0310 to PST0313 in the log), and with `postern status %s -o json` what %s has open",
				or(p.Service, "the service"), p.Peer, p.Peer)
		}},
		{TotalFlowLimit, "the gateway carries as many connections as it may", func(p Params) string {
			return fmt.Sprintf("%d connections are open through this gateway, the most it may carry; %s was refused another", p.Limit, p.Peer)
		}, func(Params) string {
			return "find who holds them: `postern status -o json` lists the flows of each peer"
		}},
		{PeerRateLimit, "a peer opens connections too fast", func(p Params) string {
			return fmt.Sprintf("%s opens more than %d connections a second to this gateway, the most it may; further ones are refused", or(p.Peer, "an unknown peer"), p.Limit)
		}, func(p Params) string {
			return fmt.Sprintf("see what at %s connects again and again: a client that keeps its connections open needs few; for one that cannot, set spec.limits.connectionsPerSecond here; `postern peer remove %s` ends it",
				or(p.Peer, "the peer"), or(p.Peer, "NAME"))
		}},
		{SocketBufferSmall, "the UDP receive buffer is too small", func(p Params) string {
			cause := fmt.Sprintf("the receive buffer of this gateway's UDP socket holds %s, and bursts need %s or more", inBytes(p.Used), inBytes(p.Max))
			if p.Used == 0 || p.Used >= p.Max {
				cause = fmt.Sprintf("the receive buffer of this gateway's UDP socket (%s) overflowed", inBytes(p.Used))
			}
			if p.Drops > 0 {
				cause += fmt.Sprintf("; %d datagrams were dropped in the last %s", p.Drops, seconds(p.Age))
			}
			return cause
		}, func(p Params) string {
			return fmt.Sprintf("run `sysctl -w net.core.rmem_max=%d net.core.wmem_max=%d` (in /etc/sysctl.d/ to keep it) and start the gateway again; "+
				"if datagrams are still dropped, give the gateway more CPU", wantedBuffer, wantedBuffer)
		}},
		{MemoryNear, "memory is near its limit", func(p Params) string {
			return fmt.Sprintf("this gateway's control group uses %s of the %s of memory that it may; beyond that the kernel ends it", inBytes(p.Used), inBytes(p.Max))
		}, func(p Params) string {
			return fmt.Sprintf("raise the limit: Helm value resources.limits.memory: %dMi, or `systemctl set-property postern MemoryMax=%dM`; "+
				"`postern status -o json` lists the flows that use it", moreMiB(p.Max), moreMiB(p.Max))
		}},
		{CPUThrottled, "the CPU limit slows the gateway down", func(p Params) string {
			return fmt.Sprintf("this gateway had to wait for its CPU limit in %d of %d periods of 100 ms in the last %s, which delays packets", p.Used, p.Max, seconds(p.Age))
		}, func(Params) string {
			return "raise or remove the limit: Helm value resources.limits.cpu: \"2\", or `systemctl set-property postern CPUQuota=200%`"
		}},
	}
}

// moreMiB is half as much again, in MiB.
func moreMiB(limit uint64) uint64 { return limit/(1<<20) + limit/(1<<21) + 1 }
