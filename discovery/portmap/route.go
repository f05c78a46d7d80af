package portmap

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// errNoRouter is returned if no default route has a router.
var errNoRouter = errors.New("this host has no default route over an IPv4 router (name it in spec.discovery.portMapping.router)")

// maxRouteTable limits how much of the routing table is read, in bytes.
const maxRouteTable = 1 << 20

// DefaultRouter returns the router of the IPv4 default route, as Linux shows it in
// /proc/net/route (proc_net(5)). On other systems it must be configured.
func DefaultRouter() (netip.Addr, error) {
	f, err := os.Open("/proc/net/route")
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the router: %w (name it in spec.discovery.portMapping.router)", err)
	}
	defer f.Close()
	table, err := io.ReadAll(io.LimitReader(f, maxRouteTable))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the router: %w", err)
	}
	if a, ok := defaultRouter(table); ok {
		return a, nil
	}
	return netip.Addr{}, errNoRouter
}

// defaultRouter returns the default route with the smallest metric in a table with the columns
// Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask, …; addresses are hexadecimal
// words in the machine's byte order.
func defaultRouter(table []byte) (router netip.Addr, ok bool) {
	const upGateway = 0x1 | 0x2 // RTF_UP, RTF_GATEWAY
	best := uint64(0)
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		flags, err1 := strconv.ParseUint(f[3], 16, 32)
		metric, err2 := strconv.ParseUint(f[6], 10, 32)
		word, err3 := hex.DecodeString(f[2])
		if err1 != nil || err2 != nil || err3 != nil || len(word) != 4 || flags&upGateway != upGateway {
			continue
		}
		if ok && metric >= best {
			continue
		}
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], binary.BigEndian.Uint32(word))
		router, best, ok = netip.AddrFrom4(b), metric, true
	}
	return router, ok
}
