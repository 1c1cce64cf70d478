// Package reach decides which addresses this process may call on behalf of others: public ones, and
// those that its operator allows.
//
// It is pure except for dialing. It is used by package builtin and package push.
package reach

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrTarget is the same for every address that is not allowed, so that a network cannot be mapped
// by trying addresses.
var ErrTarget = errors.New(
	"target is not allowed: only public addresses are, and hosts that the operator allows (--push-allow of tusk serve " +
		"and tusk dev, --allow-host of tusk work)")

// Errors of the lookup of a name that the operator did not allow by name. They do not name a
// resolver. A name that does not exist gives the same error as one in a private network.
var (
	ErrName   = errors.New("the host's name was not found, or leads to addresses that are not allowed")
	ErrLookUp = errors.New("the host's name could not be looked up")
)

// Guard decides which addresses a request may reach. It judges the address that is dialed, after
// all lookups, so that no spelling of an address and no answer of a name server can bypass it.
type Guard struct {
	hosts []string // "host" or "host:port", lower case
	nets  []netip.Prefix
	dial  net.Dialer
}

// New parses what is allowed in addition to public addresses: hosts, hosts with a port, addresses
// and networks ("10.1.0.0/16").
func New(allow []string) (*Guard, error) {
	g := &Guard{dial: net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}}
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

// CheckURL refuses URLs that are not plain http or https.
func CheckURL(u *url.URL) error {
	switch {
	case u.Scheme != "http" && u.Scheme != "https", u.Opaque != "", u.Hostname() == "", u.User != nil:
		return ErrTarget
	}
	return nil
}

// Judge refuses a URL early if its first call would be refused, or would send data in clear text to
// a host that the operator does not trust.
func (g *Guard) Judge(u *url.URL) error {
	if err := CheckURL(u); err != nil {
		return err
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	if g.trusts(net.JoinHostPort(u.Hostname(), port)) {
		return nil
	}
	n, err := strconv.Atoi(port)
	if u.Scheme != "https" || err != nil || n < 1024 && n != 443 {
		return ErrTarget
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && !g.Allows(a) {
		return ErrTarget
	}
	if host := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."); host == "localhost" ||
		strings.HasSuffix(host, ".localhost") {
		return ErrTarget
	}
	return nil
}

// Client returns a client that reaches what the guard allows, follows no redirects and ignores the
// proxies of the environment.
func (g *Guard) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            g.DialContext,
			TLSHandshakeTimeout:    10 * time.Second,
			IdleConnTimeout:        30 * time.Second,
			MaxIdleConnsPerHost:    100,
			MaxResponseHeaderBytes: 64 << 10,
			ForceAttemptHTTP2:      true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Unreached returns why a request got no answer, without its URL, which may contain a secret.
func Unreached(r *http.Request, err error) string {
	for _, known := range []error{ErrTarget, ErrName, ErrLookUp} {
		if errors.Is(err, known) {
			err = known
		}
	}
	return strings.ReplaceAll(err.Error(), strconv.Quote(r.URL.String()), r.URL.Host)
}

// DialContext connects to an address if it is allowed.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if g.named(address) {
		return g.dial.DialContext(ctx, network, address)
	}
	c, err := g.guarded().DialContext(ctx, network, address)
	if err == nil || isLiteral(address) {
		return c, err
	}
	var name *net.DNSError
	switch looked := errors.As(err, &name); {
	case looked && name.IsNotFound, errors.Is(err, ErrTarget):
		return nil, ErrName
	case looked:
		return nil, ErrLookUp
	}
	return nil, err
}

// guarded returns a dialer that judges each address before it connects.
func (g *Guard) guarded() *net.Dialer {
	d := g.dial
	d.Control = func(_, address string, _ syscall.RawConn) error {
		ap, err := netip.ParseAddrPort(address)
		if err != nil || !g.Allows(ap.Addr()) {
			return ErrTarget
		}
		return nil
	}
	return &d
}

// isLiteral reports whether the host of "host:port" is an address, not a name.
func isLiteral(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = netip.ParseAddr(host)
	return err == nil
}

// trusts reports whether the operator allows the host of "host:port", by name or by a network that
// contains it. Such a host may be called without TLS.
func (g *Guard) trusts(address string) bool {
	if g.named(address) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return err == nil && g.inNets(a.WithZone("").Unmap())
}

// named reports whether the host of "host:port" is allowed by its name.
func (g *Guard) named(address string) bool {
	host, port, err := net.SplitHostPort(strings.ToLower(address))
	if err != nil {
		return false
	}
	return slices.Contains(g.hosts, host) || slices.Contains(g.hosts, net.JoinHostPort(host, port))
}

// Allows reports whether an address may be reached.
func (g *Guard) Allows(a netip.Addr) bool {
	a = a.WithZone("").Unmap()
	return g.inNets(a) || public(a)
}

func (g *Guard) inNets(a netip.Addr) bool {
	return slices.ContainsFunc(g.nets, func(p netip.Prefix) bool { return p.Contains(a) })
}

// notPublic lists the special ranges of IANA's registries that netip has no test for, and the
// addresses where clouds keep secrets for their machines.
var notPublic = prefixes(
	"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "240.0.0.0/4", "168.63.129.16/32",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "3fff::/20", "5f00::/16", "fec0::/10",
)

// carriers are IPv6 ranges whose addresses embed an IPv4 address, with the offset of its first
// byte.
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

// RetryAfter parses the header of that name, which holds seconds or a date. The result is at most a
// day.
func RetryAfter(value string, now time.Time) (time.Duration, bool) {
	const longest = 24 * time.Hour
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil && seconds >= 0 {
		return min(time.Duration(min(seconds, int64(longest/time.Second)))*time.Second, longest), true
	}
	if at, err := time.Parse(time.RFC1123, value); err == nil {
		return min(max(at.Sub(now), 0), longest), true
	}
	return 0, false
}
