package cbfake

import (
	"bufio"
	"bytes"
	"encoding/gob"
	"errors"
	"io"
	"os"
	"time"
)

// journal is a file that keeps what is written to a cluster, so that its process can be killed.
// Each line is written by one system call before its request is answered, so answered writes
// survive.
type journal struct {
	file   *os.File
	buffer bytes.Buffer // what is not in the file yet
	to     *gob.Encoder // to the buffer
}

func newJournal(path string) (*journal, error) {
	f, err := os.Create(path)
	j := &journal{file: f}
	j.to = gob.NewEncoder(&j.buffer)
	return j, err
}

// line is a line of a journal: a statement, or the current version of a document.
type line struct {
	Statement  string
	Collection string
	Key        string
	Value      []byte
	Gone       bool
	Datatype   uint8
	Flags      uint32
	CAS        uint64
	Seqno      uint64
	Expires    time.Time
}

func lineOf(collection, key string, v *version) *line {
	return &line{Collection: collection, Key: key, Value: v.value, Gone: v.gone, Datatype: v.datatype, Flags: v.flags,
		CAS: v.cas, Seqno: v.seqno, Expires: v.expires}
}

func (j *journal) write(l *line) error {
	if j == nil {
		return nil
	}
	return errors.Join(j.to.Encode(l), j.flush())
}

func (j *journal) flush() error {
	_, err := j.file.Write(j.buffer.Bytes())
	j.buffer.Reset()
	return err
}

func (j *journal) define(statement string) error { return j.write(&line{Statement: statement}) }

func (j *journal) note(collection, key string, v *version) error {
	if j == nil {
		return nil
	}
	return j.write(lineOf(collection, key, v))
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
	statements, err := c.read(path)
	if err != nil {
		return err
	}
	fresh, err := newJournal(path + ".new")
	if err != nil {
		return err
	}
	if err := c.copyTo(fresh, statements); err != nil {
		return err
	}
	if err := os.Rename(fresh.file.Name(), path); err != nil {
		return err
	}
	c.journal = fresh
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
	for d := gob.NewDecoder(bufio.NewReaderSize(f, 1<<20)); ; {
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

// read runs the statements of a journal and returns them, and puts in the documents after that:
// each is decoded and indexed once.
func (c *Cluster) read(path string) (statements []string, err error) {
	all := map[uint32]map[string]*doc{}
	err = lines(path, func(l *line) error {
		if l.Statement != "" {
			statements = append(statements, l.Statement)
			return c.create(l.Statement)
		}
		vb, id := vbucketOf(l.Key), c.collections[l.Collection]
		c.seqno[vb], c.clock[vb] = max(c.seqno[vb], l.Seqno), max(c.clock[vb], l.CAS)
		if all[id] == nil {
			all[id] = map[string]*doc{}
		}
		all[id][l.Key] = &doc{versions: []version{{value: l.Value, gone: l.Gone, datatype: l.Datatype, flags: l.Flags,
			cas: l.CAS, seqno: l.Seqno, expires: l.Expires}}}
		return nil
	})
	for id, docs := range all {
		c.docs[id] = docs
		for _, d := range docs {
			d.know(c.of[id])
		}
		for _, x := range c.of[id] {
			x.fill(docs)
		}
	}
	return statements, err
}

// copyTo writes statements and all existing documents to a new journal.
func (c *Cluster) copyTo(j *journal, statements []string) error {
	for _, s := range statements {
		if err := j.define(s); err != nil {
			return err
		}
	}
	for name, id := range c.collections {
		for key, d := range c.docs[id] {
			if d.now().gone {
				continue
			}
			if err := j.to.Encode(lineOf(name, key, d.now())); err != nil {
				return err
			}
			if j.buffer.Len() > 1<<20 {
				if err := j.flush(); err != nil {
					return err
				}
			}
		}
	}
	return j.flush()
}
