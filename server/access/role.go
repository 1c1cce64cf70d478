// Package access decides who may do what: roles and their permissions, API tokens, local users, sessions, login with
// OpenID Connect, and the audit log of what operators did.
//
// It may use the records of a store, and requests. Packages server and ui check every request with it.
package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tuskqueue/tusk/internal/words"
)

// Permission is what a route requires.
type Permission string

// Permissions. Open requires nothing; it is for health and login.
const (
	Open    Permission = "open"
	Enqueue Permission = "enqueue" // enqueue tasks
	Work    Permission = "work"    // lease and finish tasks
	Read    Permission = "read"    // see everything but secrets
	Operate Permission = "operate" // edit tasks, pause queues, run schedules
	Admin   Permission = "admin"   // manage tokens, users and definitions of schedules; read the audit log
)

// Permissions lists all permissions, the weakest first.
func Permissions() []Permission { return []Permission{Open, Enqueue, Work, Read, Operate, Admin} }

// Role is a set of permissions.
type Role string

// Roles.
const (
	Producer Role = "producer"
	Worker   Role = "worker"
	Service  Role = "service" // an application that both enqueues and runs tasks
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admins   Role = "admin"
)

var grants = map[Role][]Permission{
	Producer: {Enqueue},
	Worker:   {Work},
	Service:  {Enqueue, Work},
	Viewer:   {Read},
	Operator: {Read, Operate, Enqueue},
	Admins:   {Read, Operate, Enqueue, Work, Admin},
}

// Roles lists all roles, the weakest first.
func Roles() []Role { return []Role{Producer, Worker, Service, Viewer, Operator, Admins} }

// ParseRole reads a role's name.
func ParseRole(name string) (Role, error) {
	if _, ok := grants[Role(name)]; ok {
		return Role(name), nil
	}
	return "", fmt.Errorf("want %s", words.Either(Roles()))
}

// May reports whether a role has a permission.
func (r Role) May(p Permission) bool { return p == Open || slices.Contains(grants[r], p) }

// Identity is who sent a request, with the queues and tenants that they are limited to.
type Identity struct {
	// ID identifies it uniquely: "token:<id>", "user:<name>" or "oidc:<issuer>#<subject>". Ownership is recorded by
	// ID, never by Name.
	ID      string   `json:"id"`
	Name    string   `json:"name"` // for people; several identities may share it
	Via     string   `json:"via"`  // token, session, dev
	Role    Role     `json:"role"`
	Queues  []string `json:"queues,omitempty"`  // names, or prefixes that end in *; empty: all
	Tenants []string `json:"tenants,omitempty"` // the same
}

// May reports whether the identity has a permission.
func (i Identity) May(p Permission) bool { return i.Role.May(p) }

// Sees reports whether a task of the queue and tenant is within the identity's bounds.
func (i Identity) Sees(queue, tenant string) bool {
	return i.SeesQueue(queue) && matches(i.Tenants, tenant)
}

// SeesQueue reports whether a queue is within bounds.
func (i Identity) SeesQueue(queue string) bool { return matches(i.Queues, queue) }

// Narrow returns the queues and tenants of a filter that are within bounds; empty means all. ok is false if none are.
// If the bounds contain prefixes, a filter that names nothing stays as it is.
func (i Identity) Narrow(queues, tenants []string) (q, t []string, ok bool) {
	q, some := narrow(i.Queues, queues)
	t, more := narrow(i.Tenants, tenants)
	return q, t, some && more
}

// mostNarrowed is the largest number of bounds that are added to a filter that names nothing.
const mostNarrowed = 100

func narrow(patterns, names []string) (within []string, ok bool) {
	open := slices.ContainsFunc(patterns, func(p string) bool { return strings.HasSuffix(p, "*") })
	switch {
	case len(patterns) == 0:
		return names, true
	case len(names) > 0:
		within = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !matches(patterns, n) })
		return within, len(within) > 0
	case open || len(patterns) > mostNarrowed:
		return nil, true
	}
	return patterns, true
}

// Bounded reports whether the identity is limited to some queues or tenants.
func (i Identity) Bounded() bool { return len(i.Queues)+len(i.Tenants) > 0 }

// Bounds returns Sees, or nil if the identity sees everything.
func (i Identity) Bounds() func(queue, tenant string) bool {
	if !i.Bounded() {
		return nil
	}
	return i.Sees
}

// Knows reports whether the identity may see something that the identity with the id owner began: its own things, or
// everything if it has no bounds.
func (i Identity) Knows(owner string) bool { return !i.Bounded() || i.ID != "" && i.ID == owner }

// SeesAllTenants reports whether the identity may see sums over all tenants.
func (i Identity) SeesAllTenants() bool {
	return len(i.Tenants) == 0 || slices.Contains(i.Tenants, "*")
}

// SeesAllOf reports whether everything in a queue is within bounds, for all tenants. An empty name means all queues.
func (i Identity) SeesAllOf(queue string) bool { return i.SeesQueue(queue) && i.SeesAllTenants() }

func matches(patterns []string, name string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, p := range patterns {
		if start, open := strings.CutSuffix(p, "*"); p == name || open && strings.HasPrefix(name, start) {
			return true
		}
	}
	return false
}
