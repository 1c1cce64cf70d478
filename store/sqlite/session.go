package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/tuskqueue/tusk/store"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements returns the statements of sql/*.sql by name: each begins with a
// line "-- name: verb.what".
var statements = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	files, _ := sqlFiles.ReadDir("sql")
	for _, file := range files {
		text, _ := sqlFiles.ReadFile("sql/" + file.Name())
		for _, section := range strings.Split("\n"+string(text), "\n-- name: ")[1:] {
			name, body, _ := strings.Cut(section, "\n")
			all[strings.TrimSpace(name)] = strings.TrimRight(strings.TrimSpace(body), ";")
		}
	}
	return all
})

// session runs named statements on one connection, or in a transaction of the
// user's. It is used by one goroutine at a time.
type session interface {
	// exec returns the number of rows that it changed.
	exec(ctx context.Context, name string, args ...any) (int64, error)
	// each calls fn for every row, until that fails.
	each(ctx context.Context, name string, fn func(row) error, args ...any) error
	// dynamic is each with a statement that is not named.
	dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error
}

// one returns the only row of a statement, nil if there is none.
func one(ctx context.Context, s session, name string, args ...any) (row, error) {
	var found row
	err := s.each(ctx, name, func(r row) error {
		found = append(row(nil), r...)
		return nil
	}, args...)
	return found, err
}

// row holds the columns of one result row; it is valid until the next one.
type row []driver.Value

func (r row) int(i int) int64 {
	switch v := r[i].(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	}
	return 0
}

func (r row) float(i int) float64 {
	if v, ok := r[i].(float64); ok {
		return v
	}
	return float64(r.int(i))
}

func (r row) null(i int) bool { return r[i] == nil }

func (r row) text(i int) string {
	switch v := r[i].(type) {
	case string:
		return v
	case []byte:
		return string(v)
	}
	return ""
}

// blob returns bytes of which nobody else keeps a reference.
func (r row) blob(i int) []byte {
	switch v := r[i].(type) {
	case []byte:
		return v
	case string:
		return []byte(v)
	}
	return nil
}

func (r row) id(i int) (id store.ID) {
	copy(id[:], r.blob(i))
	return id
}

func (r row) token(i int) (t store.Token) {
	copy(t[:], r.blob(i))
	return t
}

func (r row) time(i int) time.Time {
	if r[i] == nil {
		return time.Time{}
	}
	return at(r.int(i))
}

// direct is a session on a connection of its own. It speaks to the driver
// without database/sql in between, which saves a quarter of the time of a batch.
type direct struct {
	conn  *sql.Conn
	raw   driver.Conn
	stmts map[string]*prepared
}

type prepared struct {
	driver.Stmt
	args []driver.NamedValue
	dest []driver.Value
}

// openDirect takes a connection of the pool for good and runs pragmas on it.
func openDirect(ctx context.Context, db *sql.DB, pragmas ...string) (*direct, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	d := &direct{conn: conn, stmts: map[string]*prepared{}}
	for _, pragma := range pragmas {
		if _, err := conn.ExecContext(ctx, "pragma "+pragma); err != nil {
			d.close()
			return nil, fmt.Errorf("pragma %s: %w", pragma, err)
		}
	}
	return d, nil
}

// close gives the connection up; the pool does not get it back, since its
// settings are not those of its other connections.
func (d *direct) close() {
	d.use(func() error {
		for _, stmt := range d.stmts {
			stmt.Close()
		}
		return driver.ErrBadConn
	})
	d.conn.Close()
}

// use runs fn while the driver's connection is this goroutine's.
func (d *direct) use(fn func() error) error {
	return d.conn.Raw(func(raw any) error {
		d.raw = raw.(driver.Conn)
		return fn()
	})
}

func (d *direct) prepare(text string) (*prepared, error) {
	stmt, err := d.raw.Prepare(text)
	if err != nil {
		return nil, err
	}
	_, execs := stmt.(driver.StmtExecContext)
	_, queries := stmt.(driver.StmtQueryContext)
	if !execs || !queries {
		stmt.Close()
		return nil, fmt.Errorf("%w: the SQLite driver's statements take no contexts (%T)", store.ErrUnsupported, stmt)
	}
	return &prepared{Stmt: stmt}, nil
}

func (d *direct) named(name string) (*prepared, error) {
	if p, ok := d.stmts[name]; ok {
		return p, nil
	}
	text, ok := statements()[name]
	if !ok {
		text = name // one of the few that need no file: begin, commit, savepoint
	}
	p, err := d.prepare(text)
	if err != nil {
		return nil, err
	}
	d.stmts[name] = p
	return p, nil
}

// run runs a statement that must not be prepared ahead: SQLite carries out some
// pragmas while it prepares them.
func (d *direct) run(text string) error {
	p, err := d.prepare(text)
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Stmt.(driver.StmtExecContext).ExecContext(context.Background(), nil)
	return err
}

func (d *direct) exec(ctx context.Context, name string, args ...any) (int64, error) {
	p, err := d.named(name)
	if err != nil {
		return 0, err
	}
	result, err := p.Stmt.(driver.StmtExecContext).ExecContext(ctx, p.bind(args))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (d *direct) each(ctx context.Context, name string, fn func(row) error, args ...any) error {
	p, err := d.named(name)
	if err != nil {
		return err
	}
	return p.each(ctx, fn, args)
}

func (d *direct) dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error {
	p, err := d.prepare(text)
	if err != nil {
		return err
	}
	defer p.Close()
	return p.each(ctx, fn, args)
}

func (p *prepared) each(ctx context.Context, fn func(row) error, args []any) (err error) {
	rows, err := p.Stmt.(driver.StmtQueryContext).QueryContext(ctx, p.bind(args))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if p.dest == nil {
		p.dest = make([]driver.Value, len(rows.Columns()))
	}
	for {
		switch err := rows.Next(p.dest); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		if err := fn(p.dest); err != nil {
			return err
		}
	}
}

func (p *prepared) bind(args []any) []driver.NamedValue {
	p.args = p.args[:0]
	for i, arg := range args {
		p.args = append(p.args, driver.NamedValue{Ordinal: i + 1, Value: value(arg)})
	}
	return p.args
}

// value turns our own types into a driver's.
func value(arg any) driver.Value {
	switch v := arg.(type) {
	case nil, int64, string, []byte, float64:
		return v
	case int:
		return int64(v)
	case int16:
		return int64(v)
	case store.State:
		return int64(v)
	case store.ID:
		return v[:]
	case store.Token:
		return v[:]
	case time.Time:
		if v.IsZero() {
			return nil
		}
		return micros(v)
	case bool:
		if v {
			return int64(1)
		}
		return int64(0)
	}
	panic(fmt.Sprintf("sqlite: a statement's argument is a %T", arg))
}

// inside is a session in a transaction of the user's.
type inside struct {
	tx    *sql.Tx
	stmts map[string]*sql.Stmt
}

func (i *inside) named(ctx context.Context, name string) (*sql.Stmt, error) {
	if stmt, ok := i.stmts[name]; ok {
		return stmt, nil
	}
	text, ok := statements()[name]
	if !ok {
		text = name
	}
	stmt, err := i.tx.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	i.stmts[name] = stmt
	return stmt, nil
}

func (i *inside) exec(ctx context.Context, name string, args ...any) (int64, error) {
	stmt, err := i.named(ctx, name)
	if err != nil {
		return 0, err
	}
	result, err := stmt.ExecContext(ctx, values(args)...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (i *inside) each(ctx context.Context, name string, fn func(row) error, args ...any) error {
	stmt, err := i.named(ctx, name)
	if err != nil {
		return err
	}
	rows, err := stmt.QueryContext(ctx, values(args)...)
	if err != nil {
		return err
	}
	return scan(rows, fn)
}

func (i *inside) dynamic(ctx context.Context, text string, fn func(row) error, args ...any) error {
	rows, err := i.tx.QueryContext(ctx, text, values(args)...)
	if err != nil {
		return err
	}
	return scan(rows, fn)
}

func scan(rows *sql.Rows, fn func(row) error) error {
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	r, dest := make(row, len(columns)), make([]any, len(columns))
	for i := range dest {
		dest[i] = (*any)(nil)
		v := new(any)
		dest[i] = v
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		for i := range dest {
			r[i] = *dest[i].(*any)
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return rows.Err()
}

func values(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = value(arg)
	}
	return out
}
