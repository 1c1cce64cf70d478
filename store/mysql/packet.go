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
	if 2*(len(one.text)+sizeOf(one.args)) < s.packet {
		return false
	}
	size, largest := s.measure(one)
	return largest > s.packet || !s.owned && size >= s.packet
}

// measure returns the size of a statement, with what is added to escape its arguments, and of its largest argument.
func (s *Store) measure(one stmt) (size, largest int) {
	size = len(one.text) + sizeOf(one.args)
	for _, arg := range one.args {
		b, _ := arg.([]byte)
		largest = max(largest, len(b))
		for _, c := range b {
			if !s.owned && strings.IndexByte("\x00\n\r\x1a'\"\\", c) >= 0 {
				size++
			}
		}
	}
	return size, largest
}

// tooLarge explains the error of statements of which one has an argument that does not fit into a packet.
func (s *session) tooLarge(err error, sent []stmt) error {
	// The server has several numbers for it.
	said := codeOf(err) != 0 && strings.Contains(err.Error(), "max_allowed_packet")
	if !said && !errors.Is(err, driversql.ErrPktTooLarge) {
		return err
	}
	size, largest := 0, 0
	for _, one := range sent {
		if n, of := s.store.measure(one); n > size {
			size, largest = n, of
		}
	}
	advice := "raise it, and restart this process"
	if now := s.packetNow(); now > s.store.packet {
		advice = fmt.Sprintf("it is %d now: restart this process", now)
	}
	return fmt.Errorf("%w: a value of %d bytes, in a statement of %d, does not fit into the server's max_allowed_packet, "+
		"which is %d bytes: %s: %w", store.ErrUnstorable, largest, size, s.store.packet, advice, err)
}

// packetNow reads the server's max_allowed_packet, which new connections have. It returns 0 if it cannot.
func (s *session) packetNow() (now int) {
	rows, err := s.on.QueryContext(s.ctx, "select @@global.max_allowed_packet")
	if one(rows, err, &now) != nil {
		return 0
	}
	return now
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
