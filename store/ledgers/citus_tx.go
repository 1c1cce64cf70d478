package ledgers

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

// caller is a transaction of either driver.
type caller interface {
	exec(ctx context.Context, text string, args ...any) error
	row(ctx context.Context, text string, args ...any) row
	texts(ctx context.Context, text string, args ...any) ([]string, error)
}

// delegated runs statements on the node of a slot, in a transaction that began on another node. Citus executes a
// distributed function on the node of its argument, the slot, and the function writes local tables. The function takes
// a text, so values become literals in the statement.
type delegated struct {
	c    caller
	slot int
}

var _ postgres.Session = (*delegated)(nil)

// Exec implements postgres.Session.
func (d *delegated) Exec(ctx context.Context, text string, args ...any) error {
	text, err := inline(text, args)
	if err != nil {
		return err
	}
	return d.c.exec(ctx, "select tusk_net.run($1::int, $2::text)", d.slot, text)
}

// Each implements postgres.Session.
func (d *delegated) Each(
	ctx context.Context, row func(scan func(...any) error) error, text string, args ...any,
) error {
	text, err := inline(text, args)
	if err != nil {
		return err
	}
	rows, err := d.c.texts(ctx, "select a from tusk_net.ask($1::int, $2::text) a", d.slot, text)
	if err != nil {
		return err
	}
	for _, one := range rows {
		var values []*string
		if err := json.Unmarshal([]byte(one), &values); err != nil {
			return err
		}
		if err := row(func(into ...any) error { return scanTexts(values, into) }); err != nil {
			return err
		}
	}
	return nil
}

func scanTexts(values []*string, into []any) (err error) {
	if len(values) != len(into) {
		return fmt.Errorf("an answer has %d values, not %d", len(values), len(into))
	}
	for i, v := range values {
		if v == nil {
			return fmt.Errorf("value %d of an answer is null", i+1)
		}
		switch to := into[i].(type) {
		case *string:
			*to = *v
		case *int:
			*to, err = strconv.Atoi(*v)
		case *bool:
			*to, err = strconv.ParseBool(*v)
		default:
			err = fmt.Errorf("value %d of an answer is for a %T", i+1, to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	parameter = regexp.MustCompile(`\$([0-9]+)`)
	remark    = regexp.MustCompile(`(?m)^\s*--.*$`)
)

// inline replaces the parameters in a statement of the engine by literals. It does not search the values for
// parameters.
func inline(text string, args []any) (string, error) {
	var failed error
	text = parameter.ReplaceAllStringFunc(remark.ReplaceAllString(text, ""), func(name string) string {
		n, _ := strconv.Atoi(name[1:])
		if n < 1 || n > len(args) {
			failed = fmt.Errorf("a statement has no value %s", name)
			return name
		}
		value, is, err := textOf(args[n-1])
		if err != nil {
			failed = err
		}
		if !is {
			return "null"
		}
		return literal(value)
	})
	return text, failed
}

// literal returns an SQL literal that does not depend on how the server reads backslashes.
func literal(text string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(text) + "'"
}

// textOf formats a value for the server. It returns false for null.
func textOf(value any) (text string, is bool, err error) {
	switch v := value.(type) {
	case nil:
		return "", false, nil
	case string:
		return v, true, nil
	case []byte:
		return `\x` + hex.EncodeToString(v), v != nil, nil
	case [16]byte:
		return store.ID(v).String(), true, nil
	case pgtype.UUID:
		return store.ID(v.Bytes).String(), v.Valid, nil
	case time.Time:
		return v.UTC().Format("2006-01-02 15:04:05.999999-07"), true, nil
	}
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "", false, nil
		}
		return textOf(v.Elem().Interface())
	case reflect.Bool:
		return strconv.FormatBool(v.Bool()), true, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return strconv.FormatInt(v.Int(), 10), true, nil
	case reflect.Slice:
		return arrayText(v)
	}
	return "", false, fmt.Errorf("a value of type %T cannot be sent to another node", value)
}

func arrayText(v reflect.Value) (text string, is bool, err error) {
	if v.IsNil() {
		return "", false, nil
	}
	parts := make([]string, v.Len())
	for i := range parts {
		one, is, err := textOf(v.Index(i).Interface())
		if err != nil {
			return "", false, err
		}
		if parts[i] = "null"; is {
			parts[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(one) + `"`
		}
	}
	return "{" + strings.Join(parts, ",") + "}", true, nil
}

// commitTogether makes Citus commit a transaction on all of its nodes or on none. Citus does not know of local tables.
// If the transaction has changed nothing on this node that Citus knows of, but rows on another node, Citus commits
// those first, separately, even if they are the user's rows and the ledger is here. Deleting a row that does not exist
// is a change that Citus knows of.
func commitTogether(ctx context.Context, c caller) error {
	var group int
	if err := c.row(ctx, "select groupid from pg_dist_local_group").Scan(&group); err != nil {
		return err
	}
	if group == 0 {
		return c.exec(ctx, "delete from tusk_net.mark")
	}
	var slot *int
	if err := c.row(ctx, slotText, group).Scan(&slot); err != nil {
		return err
	}
	if slot == nil {
		return fmt.Errorf("%w: no shard of tusk_net.place lies on this node yet: tusk migrate up", store.ErrUnsupported)
	}
	return c.exec(ctx, "delete from tusk_net.place where slot = $1", *slot)
}
