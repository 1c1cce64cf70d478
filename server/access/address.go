package access

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the addresses of trusted proxies.
type Proxies []netip.Prefix

// ParseProxies reads addresses and networks, such as 10.0.0.7 and 10.1.0.0/16.
func ParseProxies(texts []string) (Proxies, error) {
	var all Proxies
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			all = append(all, netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, err
		}
		all = append(all, network.Masked())
	}
	return all, nil
}

func (p Proxies) trusts(ip netip.Addr) bool {
	for _, network := range p {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

type addressKey struct{}

// Locate records on a request where it came from: the peer of its connection, or, if that is a trusted proxy, the
// last address in X-Forwarded-For that is not one. Anybody could have written the addresses before that.
func (p Proxies) Locate(r *http.Request) *http.Request {
	from := peer(r)
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		ip, err := netip.ParseAddr(from)
		if err != nil || !p.trusts(ip.Unmap()) {
			break
		}
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		from = hop.Unmap().WithZone("").String()
	}
	return r.WithContext(context.WithValue(r.Context(), addressKey{}, from))
}

// Address returns where a request came from, as found by Locate.
func Address(r *http.Request) string {
	if from, ok := r.Context().Value(addressKey{}).(string); ok {
		return from
	}
	return peer(r)
}

func peer(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Anonymous is the identity of all requests from one address without a login or token.
func Anonymous(r *http.Request) Identity { return Identity{ID: "address:" + origin(r)} }

// origin returns what counts as one sender: an address, or for IPv6 a network of the size that a single customer has.
func origin(r *http.Request) string {
	ip, err := netip.ParseAddr(Address(r))
	if err != nil || ip.Unmap().Is4() {
		return Address(r)
	}
	network, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return Address(r)
	}
	return network.String()
}

// String lists the proxies.
func (p Proxies) String() string {
	texts := make([]string, len(p))
	for i, network := range p {
		texts[i] = network.String()
	}
	return strings.Join(texts, ", ")
}
