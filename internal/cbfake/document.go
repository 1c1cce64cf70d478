package cbfake

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

// doc is a document with its recent versions, the oldest first. The first version of a new document
// is that it does not exist.
type doc struct {
	versions    []version
	lockedUntil time.Time
	lockCAS     uint64
}

// version is the result of one write.
type version struct {
	value    []byte
	tree     any            // of the decoded value, once it was needed
	known    map[string]any // the fields that indexes know
	gone     bool
	datatype uint8
	flags    uint32
	cas      uint64
	seqno    uint64
	at       time.Time
	expires  time.Time
	durable  bool
}

func (d *doc) now() *version { return &d.versions[len(d.versions)-1] }

func (v *version) there(now time.Time) bool {
	return !v.gone && (v.expires.IsZero() || now.Before(v.expires))
}

func (d *doc) locked(now time.Time) bool { return now.Before(d.lockedUntil) }

// vbucketOf returns the vbucket of a document, by the hash with which clients find its node.
func vbucketOf(key string) int {
	return int(crc32.ChecksumIEEE([]byte(key))>>16) & 0x7fff % vbuckets
}

// time is the time of the nodes' clocks.
func (c *Cluster) time() time.Time { return time.Now().Add(c.ahead) }

// tick returns the next CAS of a vbucket. It is a hybrid clock in nanoseconds whose lowest 16 bits
// are a counter. docs.couchbase.com: "XDCR Conflict Resolution", timestamp and the hybrid logical
// clock.
func (c *Cluster) tick(vb int) uint64 {
	now := uint64(c.time().Add(c.faults.Skew[c.owner[vb]]).UnixNano()) &^ 0xffff
	c.clock[vb] = max(now, c.clock[vb]+1)
	return c.clock[vb]
}

// write adds a version, and answers with its CAS and mutation token.
func (c *Cluster) write(s *client, d *doc, p, r *memd.Packet, v version) {
	vb := vbucketOf(string(p.Key))
	c.seqno[vb]++
	v.cas, v.seqno, v.at, v.durable = c.tick(vb), c.seqno[vb], time.Now(), p.DurabilityLevelFrame != nil
	d.lockedUntil = time.Time{}
	v.know(c.of[p.CollectionID])
	d.versions = append(d.versions, v)
	c.changed(p.CollectionID, string(p.Key), d)
	if err := c.journal.note(c.nameOf(p.CollectionID), string(p.Key), d.now()); err != nil {
		r.Status = memd.StatusInternalError
		return
	}
	r.Cas = v.cas
	if s.tokens {
		r.Extras = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, c.uuid[vb]), v.seqno)
	}
}

// know stores what indexes know about a version. It drops the decoded value, which is rarely needed
// again.
func (v *version) know(indexes []*index) {
	if v.gone || len(indexes) == 0 {
		return
	}
	tree, _ := v.root()
	fields, isObject := tree.(map[string]any)
	if v.tree = nil; !isObject {
		return
	}
	v.known = map[string]any{}
	for _, x := range indexes {
		for _, name := range x.knows {
			if value, has := fields[name]; has && value != nil {
				v.known[name] = value
			}
		}
	}
}

func (d *doc) know(indexes []*index) {
	for i := range d.versions {
		d.versions[i].know(indexes)
	}
}

// old is a document that has had older versions since an instant.
type old struct {
	at         time.Time
	collection uint32
	key        string
	d          *doc
}

// changed tells the indexes about a changed document, and about documents whose older versions are
// no longer needed.
func (c *Cluster) changed(collection uint32, key string, d *doc) {
	c.old = append(c.old, old{d.now().at, collection, key, d})
	since := time.Now().Add(-max(c.faults.Lag, c.faults.Remember))
	for len(c.old) > 0 && !c.old[0].at.After(since) {
		o := c.old[0]
		c.old = c.old[1:]
		for len(o.d.versions) > 1 && !o.d.versions[1].at.After(since) {
			o.d.versions = o.d.versions[1:]
		}
		if len(o.d.versions) == 1 {
			o.d.versions = slices.Clip(slices.Clone(o.d.versions))
		}
		if o.d != d {
			c.index(o.collection, o.key, o.d)
		}
	}
	c.index(collection, key, d)
}

func (c *Cluster) index(collection uint32, key string, d *doc) {
	for _, x := range c.of[collection] {
		x.update(key, d)
	}
}

func (c *Cluster) document(s *client, p, r *memd.Packet) {
	docs, known := c.docs[p.CollectionID]
	key := string(p.Key)
	switch {
	case !known:
		r.Status = memd.StatusCollectionUnknown
		return
	case len(key) == 0 || len(key) > 246: // 250 with the id of the collection
		r.Status = memd.StatusInvalidArgs
		return
	case len(p.Value) > 20<<20:
		r.Status = memd.StatusTooBig
		return
	case c.owner[vbucketOf(key)] != s.node.number:
		r.Status, r.Value = memd.StatusNotMyVBucket, s.node.configuration(true, s.ports)
		return
	case p.DurabilityLevelFrame != nil && !c.durable(vbucketOf(key)):
		r.Status = memd.StatusDurabilityImpossible
		return
	}
	d := docs[key]
	if d == nil {
		d = &doc{versions: []version{{gone: true}}}
		docs[key] = d
	}
	now := time.Now()
	there := d.now().there(c.time())
	switch p.Command {
	case memd.CmdGet, memd.CmdGetLocked, memd.CmdDelete, memd.CmdReplace:
		if !there {
			r.Status = memd.StatusKeyNotFound
			return
		}
	}
	switch p.Command {
	case memd.CmdGet:
		d.read(r, now)
	case memd.CmdGetLocked:
		c.lock(d, p, r, now)
	case memd.CmdAdd, memd.CmdSet, memd.CmdReplace:
		c.store(s, d, p, r, there, now)
	case memd.CmdDelete:
		if d.may(p.Cas, now, r) {
			c.write(s, d, p, r, version{gone: true})
		}
	case memd.CmdSubDocMultiMutation:
		c.mutateIn(s, d, p, r, there, now)
	default:
		r.Status = memd.StatusUnknownCommand
	}
}

// read answers with the document. If the document is locked, its CAS is all ones.
// docs.couchbase.com: "Concurrent Document Mutations".
func (d *doc) read(r *memd.Packet, now time.Time) {
	v := d.now()
	r.Value, r.Cas, r.Datatype = v.value, v.cas, v.datatype
	if d.locked(now) {
		r.Cas = ^uint64(0)
	}
	r.Extras = binary.BigEndian.AppendUint32(nil, v.flags)
}

// lock locks a document for up to 30 seconds. 0 and values above 30 mean 15. A lock is not a write:
// nothing is stored, replicated or indexed. docs.couchbase.com: "Concurrent Document Mutations";
// kv_engine docs/BinaryProtocol.md, 0x94.
func (c *Cluster) lock(d *doc, p, r *memd.Packet, now time.Time) {
	if d.locked(now) {
		r.Status = memd.StatusLocked
		return
	}
	seconds := uint32(15)
	if len(p.Extras) >= 4 {
		if n := binary.BigEndian.Uint32(p.Extras); n > 0 && n <= 30 {
			seconds = n
		}
	}
	d.lockedUntil, d.lockCAS = now.Add(time.Duration(seconds)*time.Second), c.tick(vbucketOf(string(p.Key)))
	v := d.now()
	v.cas = d.lockCAS
	r.Value, r.Cas, r.Datatype, r.Extras = v.value, v.cas, v.datatype, binary.BigEndian.AppendUint32(nil, v.flags)
}

// may reports whether a write with a CAS may proceed.
func (d *doc) may(cas uint64, now time.Time, r *memd.Packet) bool {
	switch {
	case d.locked(now) && cas != d.lockCAS:
		r.Status = memd.StatusLocked
	case cas != 0 && cas != d.now().cas:
		r.Status = memd.StatusKeyExists
	default:
		return true
	}
	return false
}

func (c *Cluster) store(s *client, d *doc, p, r *memd.Packet, there bool, now time.Time) {
	switch {
	case p.Command == memd.CmdAdd && there:
		r.Status = memd.StatusKeyExists
		return
	case p.Command == memd.CmdSet && !there && p.Cas != 0:
		r.Status = memd.StatusKeyNotFound
		return
	case there && !d.may(p.Cas, now, r):
		return
	}
	v := version{value: bytes.Clone(p.Value), datatype: p.Datatype &^ uint8(memd.DatatypeFlagCompressed)}
	if len(p.Extras) >= 8 {
		v.flags, v.expires = binary.BigEndian.Uint32(p.Extras), expiry(binary.BigEndian.Uint32(p.Extras[4:]), c.time())
	}
	c.write(s, d, p, r, v)
}

// expiry decodes an expiry. Up to 30 days it is relative to now; larger values are instants.
// docs.couchbase.com: "Expiration".
func expiry(at uint32, now time.Time) time.Time {
	switch {
	case at == 0:
		return time.Time{}
	case at <= 30*24*3600:
		return now.Add(time.Duration(at) * time.Second)
	}
	return time.Unix(int64(at), 0)
}
