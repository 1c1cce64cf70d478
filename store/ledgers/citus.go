package ledgers

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// For the router, a Citus cluster is a list of servers, which the coordinator has, and a way to write on any of them in
// a user's transaction. Ledgers are local schemas on its nodes, unknown to Citus.

// citus is a cluster.
type citus struct {
	pool *pgxpool.Pool // of the coordinator
	url  *url.URL      // of the coordinator; the URLs of the nodes differ by host only

	mu    sync.Mutex
	nodes map[int]*server // by group
	hosts map[int]string  // addresses of the nodes, by group
	slots map[int]int     // one slot of each group, for delegation
}

// OpenCitus connects to a cluster by the URL of its coordinator, with the scheme citus or postgres. It connects to the
// nodes that Citus lists, with the coordinator's user, password and parameters. If clients reach a node at another
// address, put that into tusk_net.address.
func OpenCitus(ctx context.Context, dsn string) (*Store, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, errors.New("open: the URL of the coordinator cannot be read")
	}
	u.Scheme = "postgres"
	pool, schema, err := postgres.Connect(ctx, u.String())
	if err != nil {
		return nil, fmt.Errorf("open: %w", err)
	}
	net := &citus{pool: pool, url: u, nodes: map[int]*server{}, slots: map[int]int{}}
	addresses, err := net.addresses(ctx)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open: %w", err)
	}
	var pools []*pgxpool.Pool
	var groups []int
	for group, hosts := range addresses {
		node, err := net.connect(ctx, hosts)
		if err != nil {
			pool.Close()
			return nil, fmt.Errorf("open: %s: %w", hosts, err)
		}
		pools, groups = append(pools, node), append(groups, group)
	}
	s, err := New(ctx, pools, Options{Schema: schema, net: net})
	if err != nil {
		for _, node := range append(pools, pool) {
			node.Close()
		}
		return nil, err
	}
	s.owned = true
	net.mu.Lock()
	defer net.mu.Unlock()
	for i, at := range s.servers()[:len(pools)] {
		net.nodes[groups[i]] = at
	}
	net.hosts = addresses
	return s, nil
}

// addresses returns the addresses of the nodes that should have shards, by group, or the coordinator's if there are
// none.
func (c *citus) addresses(ctx context.Context) (map[int]string, error) {
	var own bool
	if err := c.pool.QueryRow(ctx, "select to_regclass('tusk_net.address') is not null").Scan(&own); err != nil {
		return nil, fmt.Errorf("%w: the coordinator: %w", store.ErrUnavailable, err)
	}
	text := `select n.groupid, n.nodename || ':' || n.nodeport from pg_dist_node n
		where n.noderole = 'primary' and n.isactive and n.shouldhaveshards`
	if own {
		text = `select n.groupid, coalesce(a.hosts, n.nodename || ':' || n.nodeport)
			from pg_dist_node n left join tusk_net.address a on a.groupid = n.groupid
			where n.noderole = 'primary' and n.isactive and n.shouldhaveshards`
	}
	rows, err := c.pool.Query(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("the coordinator's list of nodes: %w", err)
	}
	all := map[int]string{}
	var group int
	var hosts string
	_, err = pgx.ForEachRow(rows, []any{&group, &hosts}, func() error { all[group] = hosts; return nil })
	if err != nil {
		return nil, fmt.Errorf("the coordinator's list of nodes: %w", err)
	}
	if len(all) == 0 {
		all[0] = c.url.Host
	}
	return all, nil
}

// connect opens a pool to a node. Its connections do not propagate schema changes to other nodes.
func (c *citus) connect(ctx context.Context, hosts string) (*pgxpool.Pool, error) {
	u := *c.url
	u.Host = hosts
	query := u.Query()
	query.Set("options", strings.TrimSpace(query.Get("options")+" -ccitus.enable_ddl_propagation=off"))
	u.RawQuery = query.Encode()
	pool, _, err := postgres.Connect(ctx, u.String())
	return pool, err
}

// meet adds nodes that are new or have a new address, and removes those that are no longer listed.
func (c *citus) meet(ctx context.Context, s *Store) error {
	addresses, err := c.addresses(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.slots) // shards may have moved
	for group, hosts := range addresses {
		if c.hosts[group] == hosts {
			continue
		}
		pool, err := c.connect(ctx, hosts)
		if err != nil {
			return err
		}
		c.nodes[group], c.hosts[group] = s.add(pool, c.nodes[group]), hosts
	}
	for group, at := range c.nodes {
		if _, listed := addresses[group]; !listed && s.leave(at) {
			delete(c.nodes, group)
			delete(c.hosts, group)
		}
	}
	return nil
}

//go:embed citus.sql
var citusText string

// install creates what users' transactions need, on the coordinator and so on all nodes.
func (c *citus) install(ctx context.Context) error {
	var there bool
	err := c.pool.QueryRow(ctx, "select to_regclass('tusk_net.ready') is not null").Scan(&there)
	if err != nil || there {
		return errors.Join(err, c.reach(ctx))
	}
	for _, statement := range strings.Split(citusText, "\n\n") {
		if _, err := c.pool.Exec(ctx, statement); err != nil {
			return fmt.Errorf("tusk_net: %w", err)
		}
	}
	return c.reach(ctx)
}

// reach moves an empty shard of tusk_net.place to each node that has none, so that the node has a slot.
func (c *citus) reach(ctx context.Context) error {
	if c == nil {
		return nil
	}
	for {
		var node int
		err := c.pool.QueryRow(ctx, "select nodeid from ("+unreachedText+") n").Scan(&node)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err == nil { // required before a node can have shards
			_, err = c.pool.Exec(ctx, "select replicate_reference_tables()")
		}
		if err == nil {
			_, err = c.pool.Exec(ctx, reachText, node)
		}
		if err != nil {
			return fmt.Errorf("tusk_net.place: %w", err)
		}
	}
}

const (
	placeText = `
select p.shardid, p.groupid, count(*) over (partition by p.groupid) as many
from pg_dist_placement p join pg_dist_shard s using (shardid)
where s.logicalrelid = to_regclass('tusk_net.place')`

	unreachedText = `
select n.nodeid from pg_dist_node n
where n.noderole = 'primary' and n.isactive and n.shouldhaveshards
  and n.groupid not in (select p.groupid from (` + placeText + `) p)
  and exists (select from (` + placeText + `) p where p.many > 1)
limit 1`

	reachText = `
select citus_move_shard_placement(
  p.shardid, f.nodename, f.nodeport, n.nodename, n.nodeport, shard_transfer_mode := 'block_writes')
from (` + placeText + ` order by many desc, shardid limit 1) p
join pg_dist_node f on f.groupid = p.groupid and f.noderole = 'primary'
join pg_dist_node n on n.nodeid = $1`
)

// slotOf returns a slot whose shard is on the node of a server.
func (c *citus) slotOf(ctx context.Context, at *server) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for group, node := range c.nodes {
		if node != at {
			continue
		}
		if slot, known := c.slots[group]; known {
			return slot, nil
		}
		var slot *int
		if err := c.pool.QueryRow(ctx, slotText, group).Scan(&slot); err != nil {
			return 0, err
		}
		if slot == nil {
			return 0, fmt.Errorf("%w: no shard of tusk_net.place lies on %s yet: tusk migrate up", store.ErrUnsupported, at.name)
		}
		c.slots[group] = *slot
		return *slot, nil
	}
	return 0, fmt.Errorf("%w: %s is no node", store.ErrUnsupported, at.name)
}

const slotText = `
select min(s.slot) from generate_series(0, 1023) s(slot)
where exists (
  select from pg_dist_placement p
  where p.shardid = get_shard_id_for_distribution_column('tusk_net.place', s.slot) and p.groupid = $1)`
