package archive

import (
	"cmp"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"time"
)

// stray is an id that was made before the first task of its file ended: its checksum, and the row
// group that has it.
type stray struct {
	sum   uint32
	group uint16
}

// strays are the strays of a file, sorted by checksum. Most tasks end soon after they were
// enqueued, so only a few files of a queue are from the time at which an id was made. But any later
// file may have a task that waited for days. Its strays say whether it does, and where.
type strays []stray

const (
	mostStrays = 4096 // of a file; if there are more, only Spans tell
	strayBytes = 6
)

func checksumOf(id string) uint32 { return crc32.ChecksumIEEE([]byte(id)) }

// group returns the row group that has an id.
func (s strays) group(id string) (group int, has bool) {
	at, has := slices.BinarySearchFunc(s, checksumOf(id), func(x stray, sum uint32) int { return cmp.Compare(x.sum, sum) })
	if !has {
		return 0, false
	}
	return int(s[at].group), true
}

// MarshalText implements encoding.TextMarshaler.
func (s strays) MarshalText() ([]byte, error) {
	bytes := make([]byte, 0, strayBytes*len(s))
	for _, x := range s {
		bytes = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(bytes, x.sum), x.group)
	}
	return base64.StdEncoding.AppendEncode(nil, bytes), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *strays) UnmarshalText(text []byte) error {
	bytes, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	*s = make(strays, 0, len(bytes)/strayBytes)
	for ; len(bytes) >= strayBytes; bytes = bytes[strayBytes:] {
		*s = append(*s, stray{binary.BigEndian.Uint32(bytes), binary.BigEndian.Uint16(bytes[4:])})
	}
	return nil
}

// startAt notes that a task of the file ended at first.
func (f *File) startAt(first time.Time) {
	if at := first.Unix(); f.Since == 0 || at < f.Since {
		f.Since = at
	}
}

// stray adds an id of a row group to the strays.
func (f *File) stray(id string, group int) {
	if f.manyStrays {
		return
	}
	if f.manyStrays = len(f.Strays) == mostStrays; !f.manyStrays {
		f.Strays = append(f.Strays, stray{checksumOf(id), uint16(group)})
	}
}

// endStrays is called when all rows are counted.
func (f *File) endStrays() {
	if f.manyStrays {
		f.Since, f.Strays = 0, nil
	}
	slices.SortFunc(f.Strays, func(a, b stray) int { return cmp.Compare(a.sum, b.sum) })
}

// likely reports whether a file that may have an id lists it among its strays.
func (f *File) likely(id string) bool { return secondOf(id) < f.Since }

// mayHave reports whether a file may have a task.
func (f *File) mayHave(id string) bool {
	if id < f.MinID || id > f.MaxID {
		return false
	}
	second := secondOf(id)
	if second < f.Since {
		_, has := f.Strays.group(id)
		return has
	}
	_, holds := f.Spans.find(second)
	return holds || len(f.Spans) == 0
}
