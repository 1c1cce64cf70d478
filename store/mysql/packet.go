package mysql

import (
	"errors"
	"fmt"
	"slices"
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

// sizeOf estimates how many bytes arguments take.
func sizeOf(args []any) (size int) {
	for _, arg := range args {
		if b, ok := arg.([]byte); ok {
			size += len(b)
		}
	}
	return size + 16*len(args)
}

// exceeds reports whether an argument is too large for the server.
func (s *Store) exceeds(args []any) bool {
	return slices.ContainsFunc(args, func(arg any) bool {
		b, ok := arg.([]byte)
		return ok && len(b) > s.packet
	})
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
