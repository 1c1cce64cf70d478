package builtin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// errTarget says the same about every address that is not allowed, so that
// nobody can map a network by asking.
var errTarget = errors.New("target is not allowed: only public addresses are, and hosts that the worker allows")

// guard decides which addresses a request may reach. It judges the address that
// is being dialed, after all look-ups, so that no spelling of it and no answer of
// a name server gets round it.
type guard struct {
	hosts []string // "host" or "host:port", lower case
	nets  []netip.Prefix
	dial  net.Dialer
}

// newGuard reads what is allowed besides public addresses: hosts, hosts with a
// port, addresses and networks ("10.1.0.0/16").
func newGuard(allow []string) (*guard, error) {
	g := &guard{dial: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}}
	for _, entry := range allow {
		if prefix, err := netip.ParsePrefix(entry); err == nil {
			g.nets = append(g.nets, prefix.Masked())
			continue
		}
		host := strings.ToLower(entry)
		if strings.ContainsAny(host, "/@?# \t*") || host == "" {
			return nil, fmt.Errorf("allowed host %q: want a host, host:port, or a network such as 10.1.0.0/16", entry)
		}
		if addr, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
			host = addr.String()
		}
		g.hosts = append(g.hosts, host)
	}
	return g, nil
}

// checkURL refuses what is not plain http or https.
func checkURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "", u.User != nil:
		return errTarget
	}
	return nil
}

// DialContext connects to an address that is allowed.
func (g *guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if g.named(address) {
		return g.dial.DialContext(ctx, network, address)
	}
	d := g.dial
	d.Control = func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !g.allows(ap.Addr()) {
			return errTarget
		}
		return nil
	}
	return d.DialContext(ctx, network, address)
}

// named reports whether the host of "host:port" is allowed by its name.
func (g *guard) named(address string) bool {
	host, port, err := net.SplitHostPort(strings.ToLower(address))
	if err != nil {
		return false
	}
	return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, net.JoinHostPort(host, port))
}

func (g *guard) allows(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	for _, prefix := range g.nets {
		if prefix.Contains(a) {
			return true
		}
	}
	return public(a)
}

// notPublic are the special ranges of IANA's registries that netip has no test
// for, and the addresses at which clouds keep secrets for their machines.
var notPublic = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "168.63.129.16/32",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

// carriers are ranges of IPv6 that carry an IPv4 address, and where it begins.
var carriers = map[netip.Prefix]int{
	netip.MustParsePrefix("64:ff9b::/96"): 12,
	netip.MustParsePrefix("2002::/16"):    2,
}

func public(a netip.Addr) bool {
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
		return false
	}
	for _, prefix := range notPublic {
		if prefix.Contains(a) {
			return false
		}
	}
	for prefix, at := range carriers {
		if prefix.Contains(a) {
			whole := a.As16()
			return public(netip.AddrFrom4([4]byte(whole[at : at+4])))
		}
	}
	return true
}

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// retryAfter reads the header of that name: seconds or a date.
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	const longest = 24 * time.Hour
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, int64(longest/time.Second)))*time.Second, longest), true
	}
	if at, err := time.Parse(time.RFC1123, value); err == nil {
		return min(max(at.Sub(now), 0), longest), true
	}
	return 0, false
}
