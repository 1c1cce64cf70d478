package cbfake

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/couchbase/gocbcore/v10/memd"
)

// most is the largest number of specs in a request. docs.couchbase.com: "Sub-Document Operations",
// limits.
const most = 16

// spec is one part of a sub-document request.
type spec struct {
	op    memd.CmdCode
	flags memd.SubdocFlag
	path  string
	value []byte
}

// specsOf decodes the specs of a request.
func specsOf(b []byte) (specs []spec, ok bool) {
	const head = 8
	for len(b) > 0 {
		if len(b) < head {
			return nil, false
		}
		s := spec{op: memd.CmdCode(b[0]), flags: memd.SubdocFlag(b[1])}
		n, m := int(binary.BigEndian.Uint16(b[2:])), int(binary.BigEndian.Uint32(b[4:]))
		if len(b) < head+n+m {
			return nil, false
		}
		s.path, s.value = string(b[head:head+n]), b[head+n:head+n+m]
		specs, b = append(specs, s), b[head+n+m:]
	}
	return specs, len(specs) > 0 && len(specs) <= most
}

// mutateIn changes parts of a document: all of them or none. docs.couchbase.com: "Sub-Document
// Operations", multi-mutation.
func (c *Cluster) mutateIn(s *client, d *doc, p, r *memd.Packet, there bool, now time.Time) {
	specs, ok := specsOf(p.Value)
	if !ok {
		r.Status = memd.StatusSubDocBadCombo
		return
	}
	flags, expires := extrasOf(p, c.time())
	v := version{datatype: uint8(memd.DatatypeFlagJSON), expires: expires, flags: d.now().flags}
	switch {
	case there && flags&memd.SubdocDocFlagAddDoc != 0:
		r.Status = memd.StatusKeyExists
		return
	case !there && flags&(memd.SubdocDocFlagAddDoc|memd.SubdocDocFlagMkDoc) == 0:
		r.Status = memd.StatusKeyNotFound
		return
	case !there:
		v.tree, v.flags = map[string]any{}, 0x2000006
	default:
		if !d.may(p.Cas, now, r) {
			return
		}
		old, ok := d.now().root()
		if !ok {
			r.Status = memd.StatusSubDocNotJSON
			return
		}
		v.tree = clone(old)
	}
	var out []byte
	for i, sp := range specs {
		value, status := sp.apply(v.tree)
		if status != 0 {
			r.Status = memd.StatusSubDocBadMulti
			r.Value = binary.BigEndian.AppendUint16([]byte{byte(i)}, uint16(status))
			return
		}
		if value != nil {
			out = binary.BigEndian.AppendUint16(append(out, byte(i)), 0)
			out = binary.BigEndian.AppendUint32(out, uint32(len(value)))
			out = append(out, value...)
		}
	}
	v.value = encode(v.tree)
	c.write(s, d, p, r, v)
	r.Value = out
}

// extrasOf decodes the flags and the expiry of a request.
func extrasOf(p *memd.Packet, now time.Time) (flags memd.SubdocDocFlag, expires time.Time) {
	switch len(p.Extras) {
	case 1:
		flags = memd.SubdocDocFlag(p.Extras[0])
	case 4, 5:
		expires = expiry(binary.BigEndian.Uint32(p.Extras), now)
		if len(p.Extras) == 5 {
			flags = memd.SubdocDocFlag(p.Extras[4])
		}
	}
	return flags, expires
}

// apply changes one path of a document.
func (sp *spec) apply(tree any) (value []byte, status memd.StatusCode) {
	parts := split(sp.path)
	if len(parts) == 0 {
		return nil, memd.StatusSubDocPathInvalid
	}
	parent := tree
	for _, step := range parts[:len(parts)-1] {
		next, status := find(parent, []string{step})
		if status == memd.StatusSubDocPathNotFound && sp.flags&memd.SubdocFlagMkDirP != 0 {
			m, isMap := parent.(map[string]any)
			if !isMap {
				return nil, memd.StatusSubDocPathMismatch
			}
			next = map[string]any{}
			m[step] = next
		} else if status != 0 {
			return nil, status
		}
		parent = next
	}
	m, isMap := parent.(map[string]any)
	if !isMap {
		return nil, memd.StatusSubDocPathMismatch
	}
	return sp.change(m, parts[len(parts)-1])
}

func (sp *spec) change(m map[string]any, name string) ([]byte, memd.StatusCode) {
	old, exists := m[name]
	text := sp.value
	if sp.op == memd.CmdSubDocArrayPushLast {
		text = append(append([]byte{'['}, text...), ']')
	}
	v, ok := decode(text)
	switch {
	case sp.op == memd.CmdSubDocDelete && exists:
		delete(m, name)
		return nil, 0
	case sp.op == memd.CmdSubDocCounter:
		return count(m, name, string(sp.value))
	case sp.op != memd.CmdSubDocDelete && !ok:
		return nil, memd.StatusSubDocCantInsert
	}
	switch sp.op {
	case memd.CmdSubDocDictAdd:
		if exists {
			return nil, memd.StatusSubDocPathExists
		}
		m[name] = v
	case memd.CmdSubDocDictSet:
		m[name] = v
	case memd.CmdSubDocReplace, memd.CmdSubDocDelete:
		if !exists {
			return nil, memd.StatusSubDocPathNotFound
		}
		m[name] = v
	case memd.CmdSubDocArrayPushLast:
		a, isArray := old.([]any)
		if exists && !isArray {
			return nil, memd.StatusSubDocPathMismatch
		}
		if !exists && sp.flags&memd.SubdocFlagMkDirP == 0 {
			return nil, memd.StatusSubDocPathNotFound
		}
		m[name] = append(a, v.([]any)...)
	default:
		return nil, memd.StatusSubDocBadCombo
	}
	return nil, 0
}

func count(m map[string]any, name, by string) ([]byte, memd.StatusCode) {
	delta, err := strconv.ParseInt(by, 10, 64)
	if err != nil || delta == 0 {
		return nil, memd.StatusSubDocBadDelta
	}
	var n int64
	if old, exists := m[name]; exists {
		number, ok := old.(json.Number)
		if !ok {
			return nil, memd.StatusSubDocPathMismatch
		}
		n, _ = number.Int64()
	}
	m[name] = json.Number(strconv.FormatInt(n+delta, 10))
	return fmt.Append(nil, n+delta), 0
}
