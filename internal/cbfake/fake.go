// Package cbfake is a fake Couchbase cluster with one bucket, in memory, for tests of the engine.
// The real client connects to it with the real protocol over TCP, and with HTTP for queries. It is
// not a storage engine. If it differs from the documented server, the fake is wrong.
//
// It supports what the engine uses: documents with CAS, locks, expiry and durability,
// sub-documents, collections, several nodes, and a small part of SQL++ (statement.go). It can lose
// requests and answers, refuse requests, forget locks, fail over and lose what was not durable, let
// its index lag, and recognize new collections late (fault.go). It may lack nodes for its replicas
// (replica.go).
//
// It imports no other package of this module. Only tests use it.
package cbfake

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

// vbuckets is the number of vbuckets. A real bucket has 1024 or 128.
const vbuckets = 64

// The names and the password that a fake accepts.
const (
	Bucket   = "bucket"
	User     = "user"
	Password = "password"
	Version  = "7.6.2-3721-enterprise"
)

// Cluster is a fake cluster.
type Cluster struct {
	mu          sync.Mutex
	nodes       []*node
	owner       [vbuckets]int // the node that serves each vbucket
	uuid        [vbuckets]uint64
	replicas    int          // of the bucket
	out         map[int]bool // nodes that were failed over
	revision    int
	collections map[string]uint32 // by scope.collection
	docs        map[uint32]map[string]*doc
	scopes      map[string]bool
	made        map[string]time.Time // when each scope and each scope.collection was created
	indexes     map[string]*index    // by scope.index
	of          map[uint32][]*index  // by collection
	old         []old
	journal     *journal
	prepared    map[string]string     // statements by name
	parsed      map[string]*statement // by text
	clock       [vbuckets]uint64      // the last CAS of each vbucket
	ahead       time.Duration         // how far the clock has jumped
	seqno       [vbuckets]uint64
	conns       map[net.Conn]bool
	faults      Faults

	requests [256]atomic.Int64
	queries  atomic.Int64
	work     sync.WaitGroup
}

// node is one node: a port for key-value requests and one for queries.
type node struct {
	cluster *Cluster
	number  int
	kv, web net.Listener
	server  *http.Server
}

// Options are the options of a new cluster.
type Options struct {
	Nodes     int
	Replicas  int       // of the bucket
	Addresses []Address // of the nodes; empty means any
	Journal   string    // a file that keeps all writes for the next cluster started with it; empty means none
}

// Address is where a node listens: for document requests and for queries.
type Address struct{ KV, Web string }

// Start starts a cluster with the given number of nodes.
func Start(nodes int) (*Cluster, error) { return StartWith(Options{Nodes: nodes}) }

// StartWith starts a cluster.
func StartWith(o Options) (*Cluster, error) {
	c := &Cluster{
		collections: map[string]uint32{"_default._default": 0}, docs: map[uint32]map[string]*doc{0: {}},
		scopes: map[string]bool{"_default": true}, made: map[string]time.Time{}, replicas: o.Replicas,
		out: map[int]bool{}, indexes: map[string]*index{}, of: map[uint32][]*index{},
		prepared: map[string]string{}, parsed: map[string]*statement{}, conns: map[net.Conn]bool{}, revision: 1,
	}
	for vb := range c.owner {
		c.owner[vb], c.uuid[vb] = vb%o.Nodes, newUUID()
	}
	if err := c.load(o.Journal); err != nil {
		return nil, err
	}
	for i := range o.Nodes {
		at := Address{"127.0.0.1:0", "127.0.0.1:0"}
		if len(o.Addresses) > 0 {
			at = o.Addresses[i]
		}
		n := &node{cluster: c, number: i}
		var err error
		if n.kv, err = net.Listen("tcp", at.KV); err != nil {
			return nil, err
		}
		if n.web, err = net.Listen("tcp", at.Web); err != nil {
			return nil, err
		}
		n.server = &http.Server{Handler: http.HandlerFunc(n.serveHTTP)}
		c.nodes = append(c.nodes, n)
	}
	for _, n := range c.nodes {
		c.work.Go(func() { _ = n.server.Serve(n.web) })
		c.work.Go(n.accept)
	}
	return c, nil
}

// Addresses returns where the nodes listen.
func (c *Cluster) Addresses() (all []Address) {
	for _, n := range c.nodes {
		all = append(all, Address{n.kv.Addr().String(), n.web.Addr().String()})
	}
	return all
}

// URL returns the connection string, with the user and the bucket.
func (c *Cluster) URL() string {
	return fmt.Sprintf("couchbase://%s:%s@%s/%s", User, Password, c.nodes[0].kv.Addr(), Bucket)
}

// Close ends all connections and waits until no request is served any more.
func (c *Cluster) Close() {
	for _, n := range c.nodes {
		n.kv.Close()
		n.server.Close()
	}
	c.hangUp()
	c.work.Wait()
	c.journal.close()
}

func (c *Cluster) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		conn.Close()
	}
}

// Requests returns the number of document requests.
func (c *Cluster) Requests() (n int64) {
	for _, code := range documentRequests {
		n += c.requests[code].Load()
	}
	return n
}

// Writes returns how many of these would have changed a document.
func (c *Cluster) Writes() (n int64) {
	for _, code := range documentRequests {
		if code != memd.CmdGet {
			n += c.requests[code].Load()
		}
	}
	return n
}

// Queries returns the number of statements that were run.
func (c *Cluster) Queries() int64 { return c.queries.Load() }

var documentRequests = []memd.CmdCode{memd.CmdGet, memd.CmdSet, memd.CmdAdd, memd.CmdReplace, memd.CmdDelete,
	memd.CmdGetLocked, memd.CmdSubDocMultiMutation}

func (n *node) accept() {
	for {
		conn, err := n.kv.Accept()
		if err != nil {
			return
		}
		n.cluster.mu.Lock()
		n.cluster.conns[conn] = true
		n.cluster.mu.Unlock()
		n.cluster.work.Go(func() { n.serve(conn) })
	}
}

// client is a connection, with what both sides have agreed on.
type client struct {
	*memd.Conn
	node   *node
	bucket bool
	tokens bool  // it wants mutation tokens
	ports  []int // that it is told the nodes have, for example those of a proxy
}

func (n *node) serve(conn net.Conn) {
	defer func() {
		conn.Close()
		n.cluster.mu.Lock()
		delete(n.cluster.conns, conn)
		n.cluster.mu.Unlock()
	}()
	in, out := bufio.NewReader(conn), bufio.NewWriter(conn)
	defer out.Flush()
	s := &client{Conn: memd.NewConn(bufio.NewReadWriter(in, out)), node: n}
	for {
		if in.Buffered() == 0 && out.Flush() != nil { // answers are sent together, as a server does
			return
		}
		p, _, err := s.ReadPacket()
		if err != nil {
			return
		}
		r := &memd.Packet{Magic: memd.CmdMagicRes, Command: p.Command, Opaque: p.Opaque}
		n.cluster.requests[p.Command].Add(1)
		loseAnswer := false
		switch n.cluster.spoil(p) {
		case LoseRequest:
			return
		case LoseAnswer:
			loseAnswer = true
			n.cluster.handle(s, p, r)
		case Busy:
			r.Status = memd.StatusTmpFail
		case Elsewhere:
			r.Status = memd.StatusNotMyVBucket
			r.Value = n.config(true, s.ports)
		case SyncWrite:
			r.Status = memd.StatusSyncWriteInProgress
		default:
			n.cluster.handle(s, p, r)
		}
		if loseAnswer || s.WritePacket(r) != nil {
			return
		}
		if p.Command == memd.CmdHello {
			s.agree(r.Value)
		}
	}
}

// features lists the protocol features that the fake supports.
var features = map[memd.HelloFeature]bool{memd.FeatureDatatype: true, memd.FeatureTCPNoDelay: true,
	memd.FeatureSeqNo: true,
	memd.FeatureXattr: true, memd.FeatureXerror: true, memd.FeatureSelectBucket: true, memd.FeatureJSON: true,
	memd.FeatureUnorderedExec: true, memd.FeatureAltRequests: true, memd.FeatureSyncReplication: true,
	memd.FeatureCollections: true}

// agree turns on the features that both sides know.
func (s *client) agree(list []byte) {
	for i := 0; i+1 < len(list); i += 2 {
		f := memd.HelloFeature(binary.BigEndian.Uint16(list[i:]))
		s.EnableFeature(f)
		s.tokens = s.tokens || f == memd.FeatureSeqNo
	}
}

// login checks a user and a password. The user name user@1,2,3,4 means the same user, who is told
// that the nodes listen at these ports, two for each. They are the ports of a proxy.
func (s *client) login(text string) bool {
	parts := strings.Split(text, "\x00")
	if len(parts) != 3 || parts[2] != Password {
		return false
	}
	name, ports, _ := strings.Cut(parts[1], "@")
	s.ports = nil
	for _, port := range strings.FieldsFunc(ports, func(c rune) bool { return c == ',' }) {
		n, err := strconv.Atoi(port)
		if err != nil {
			return false
		}
		s.ports = append(s.ports, n)
	}
	return name == User && (s.ports == nil || len(s.ports) == 2*len(s.node.cluster.nodes))
}

// handle answers one request.
func (c *Cluster) handle(s *client, p, r *memd.Packet) {
	switch p.Command {
	case memd.CmdHello:
		for i := 0; i+1 < len(p.Value); i += 2 {
			if f := binary.BigEndian.Uint16(p.Value[i:]); features[memd.HelloFeature(f)] {
				r.Value = binary.BigEndian.AppendUint16(r.Value, f)
			}
		}
	case memd.CmdSASLListMechs:
		r.Value = []byte("PLAIN")
	case memd.CmdSASLAuth:
		if !s.login(string(p.Value)) {
			r.Status = memd.StatusAuthError
		}
	case memd.CmdSelectBucket:
		if s.bucket = string(p.Key) == Bucket; !s.bucket {
			r.Status = memd.StatusAccessError
		}
	case memd.CmdGetErrorMap:
		r.Value = []byte(`{"version":2,"revision":1,"errors":{}}`)
	case memd.CmdGetClusterConfig:
		r.Value, r.Datatype = s.node.config(s.bucket, s.ports), uint8(memd.DatatypeFlagJSON)
	case memd.CmdCollectionsGetID:
		c.mu.Lock()
		defer c.mu.Unlock()
		id, known := c.collections[string(p.Value)]
		if !known {
			r.Status = memd.StatusCollectionUnknown
			return
		}
		r.Extras = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, 1), id)
	case memd.CmdNoop:
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.document(s, p, r)
	}
}
