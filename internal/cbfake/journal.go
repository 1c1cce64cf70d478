package cbfake

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"
)

// journal is a file that keeps what is written to a cluster, so that its process can be killed.
// Each line is written by one system call before its request is answered, so answered writes
// survive.
type journal struct{ file *os.File }

// line is a line of a journal: a statement, or the current version of a document.
type line struct {
	Statement  string    `json:"s,omitempty"`
	Collection string    `json:"c,omitempty"`
	Key        string    `json:"k,omitempty"`
	Value      []byte    `json:"v,omitempty"`
	Gone       bool      `json:"gone,omitempty"`
	Datatype   uint8     `json:"d,omitempty"`
	Flags      uint32    `json:"f,omitempty"`
	CAS        uint64    `json:"cas,omitempty"`
	Seqno      uint64    `json:"n,omitempty"`
	Expires    time.Time `json:"x,omitzero"`
}

func (j *journal) write(l *line) error {
	if j == nil {
		return nil
	}
	text, err := json.Marshal(l)
	if err == nil {
		_, err = j.file.Write(append(text, '\n'))
	}
	return err
}

func (j *journal) define(statement string) error { return j.write(&line{Statement: statement}) }

func (j *journal) note(collection, key string, v *version) error {
	if j == nil {
		return nil
	}
	return j.write(&line{Collection: collection, Key: key, Value: v.value, Gone: v.gone, Datatype: v.datatype,
		Flags: v.flags, CAS: v.cas, Seqno: v.seqno, Expires: v.expires})
}

func (j *journal) close() {
	if j != nil {
		j.file.Close()
	}
}

// nameOf returns the name of a collection. The next process may give the collection another id.
func (c *Cluster) nameOf(id uint32) string {
	if c.journal == nil {
		return ""
	}
	for name, other := range c.collections {
		if other == id {
			return name
		}
	}
	return ""
}

// load reads what the previous cluster left, and continues with a new file that has only the
// current state.
func (c *Cluster) load(path string) error {
	if path == "" {
		return nil
	}
	if err := c.read(path); err != nil {
		return err
	}
	fresh, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	if err := c.copyTo(fresh, path); err != nil {
		return err
	}
	if err := os.Rename(fresh.Name(), path); err != nil {
		return err
	}
	c.journal = &journal{fresh}
	return nil
}

// lines calls each with every line of a journal. An incomplete last line is ignored, since its
// request was not answered.
func lines(path string, each func(l *line) error) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	for d := json.NewDecoder(bufio.NewReaderSize(f, 1<<20)); ; {
		var l line
		if err := d.Decode(&l); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := each(&l); err != nil {
			return err
		}
	}
}

func (c *Cluster) read(path string) error {
	var indexes []string
	err := lines(path, func(l *line) error {
		switch {
		case len(l.Statement) > 12 && l.Statement[:12] == "CREATE INDEX": // run after the documents are loaded
			indexes = append(indexes, l.Statement)
			return nil
		case l.Statement != "":
			return c.create(l.Statement)
		}
		vb := vbucketOf(l.Key)
		c.seqno[vb], c.clock[vb] = max(c.seqno[vb], l.Seqno), max(c.clock[vb], l.CAS)
		c.docs[c.collections[l.Collection]][l.Key] = &doc{versions: []version{{value: l.Value, gone: l.Gone,
			datatype: l.Datatype, flags: l.Flags, cas: l.CAS, seqno: l.Seqno, expires: l.Expires}}}
		return nil
	})
	for _, statement := range indexes {
		if err == nil {
			err = c.create(statement)
		}
	}
	return err
}

// copyTo writes the statements of a journal and all existing documents.
func (c *Cluster) copyTo(f *os.File, path string) error {
	buffer := bufio.NewWriterSize(f, 1<<20)
	to := json.NewEncoder(buffer)
	err := lines(path, func(l *line) error {
		if l.Statement == "" {
			return nil
		}
		return to.Encode(l)
	})
	for name, id := range c.collections {
		for key, d := range c.docs[id] {
			if v := d.now(); err == nil && !v.gone {
				err = to.Encode(&line{Collection: name, Key: key, Value: v.value, Datatype: v.datatype, Flags: v.flags,
					CAS: v.cas, Seqno: v.seqno, Expires: v.expires})
			}
		}
	}
	return errors.Join(err, buffer.Flush())
}
