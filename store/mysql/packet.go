package mysql

import (
	"errors"
	"fmt"
	"strings"

	driversql "github.com/go-sql-driver/mysql"

	"github.com/tuskqueue/tusk/store"
)

const (
	// maxAtOnce is how many bytes of arguments are sent at once if the server accepts that many.
	maxAtOnce = 2 << 20

	// leastPacket is the max_allowed_packet below which Check warns: the default of MariaDB. That of MySQL is larger.
	leastPacket = 16 << 20
)

// atOnce is how many bytes of arguments are sent at once. Bytes that are written into a statement may double.
func (s *Store) atOnce() int { return min(maxAtOnce, s.packet/4) }

// sizeOf estimates how many bytes arguments take, not counting what is added to escape them.
func sizeOf(args []any) (size int) {
	for _, arg := range args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	return size + 20*len(args)
}

// exceeds reports whether a statement is too large for the server. The connections of Open know the server's limit. If
// a statement with its arguments is longer, they send the arguments separately, and large ones in pieces. A user's pool
// may write the arguments into any statement.
func (s *Store) exceeds(one stmt) bool {
	size := len(one.text) + sizeOf(one.args)
	if 2*size < s.packet {
		return false
	}
	escaped := 0
	for _, arg := range one.args {
		b, _ := arg.([]byte)
		if len(b) > s.packet {
			return true
		}
		for _, c := range b {
			if strings.IndexByte("\x00\n\r\x1a'\"\\", c) >= 0 {
				escaped++
			}
		}
	}
	return !s.owned && size+escaped >= s.packet
}

// tooLarge explains the error of a statement with an argument that does not fit into a packet.
func (s *Store) tooLarge(err error) error {
	// The server has several numbers for it.
	said := codeOf(err) != 0 && strings.Contains(err.Error(), "max_allowed_packet")
	if !said && !errors.Is(err, driversql.ErrPktTooLarge) {
		return err
	}
	return fmt.Errorf("%w: a value is larger than the server's max_allowed_packet, which is %d bytes: raise it: %w",
		store.ErrUnstorable, s.packet, err)
}

// inserts gathers rows for statements that insert up to most rows each, and limits the size of a statement.
type inserts struct {
	*work
	name, group string
	most        int
	args        []any
	rows, size  int
}

// add adds a row.
func (i *inserts) add(row ...any) {
	size := sizeOf(row)
	if i.rows == i.most || i.size+size > i.store.atOnce()/2 {
		i.put()
	}
	i.args, i.rows, i.size = append(i.args, row...), i.rows+1, i.size+size
}

// put gathers the statement for the rows that were added.
func (i *inserts) put() {
	if i.rows > 0 {
		i.do(list(i.name, i.group, i.rows), i.args...)
	}
	i.args, i.rows, i.size = nil, 0, 0
}
