package ledgers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/tuskqueue/tusk/store"
	"github.com/tuskqueue/tusk/store/postgres"
)

var _ store.Archiver = (*Store)(nil)

// Due implements store.Archiver, ledger by ledger. A page comes from one ledger, whose number begins the continuation
// text. A ledger that is away has nothing due until it is back.
func (s *Store) Due(ctx context.Context, keep store.Retention, from string, limit int) (store.Due, error) {
	all, err := s.ledgers(ctx)
	if err != nil {
		return store.Due{}, err
	}
	no, rest, err := placeOfPage(from, len(all))
	if err != nil {
		return store.Due{}, fmt.Errorf("due: %w", err)
	}
	if from == "" {
		if ready, err := s.mayForget(ctx, all, keep); err != nil || !ready {
			return store.Due{}, err
		}
	}
	due, err := ask(ctx, all[no], func(ctx context.Context, e *postgres.Store) (store.Due, error) {
		return e.Due(ctx, keep, rest, limit)
	})
	if err != nil && (!errors.Is(err, store.ErrUnavailable) || len(all) == 1) {
		return store.Due{}, err
	}
	switch {
	case due.Next != "":
		due.Next = fmt.Sprintf("%d:%s", no, due.Next)
	case no+1 < len(all):
		due.Next = fmt.Sprintf("%d:", no+1)
	}
	if due.Receipt != nil {
		due.Receipt = append([]byte{byte(no)}, due.Receipt...)
	}
	return due, nil
}

var _ store.Neighbour = (*Store)(nil)

// Others implements store.Neighbour. It asks one ledger after the other, because ledgers of the same server would
// otherwise see each other's queries.
func (s *Store) Others(ctx context.Context) (total int, err error) {
	all, err := s.ledgers(ctx)
	for i := 0; i < len(all) && err == nil; i++ {
		var n int
		n, err = ask(ctx, all[i], func(ctx context.Context, e *postgres.Store) (int, error) { return e.Others(ctx) })
		total += n
	}
	return total, err
}

// placeOfPage returns the ledger and the position there that a continuation text names.
func placeOfPage(from string, ledgers int) (no int, rest string, err error) {
	if from == "" {
		return 0, "", nil
	}
	number, rest, _ := strings.Cut(from, ":")
	if no, err = strconv.Atoi(number); err != nil || no < 0 || no >= ledgers {
		return 0, "", fmt.Errorf("no page begins with %q", from)
	}
	return no, rest, nil
}

// Release implements store.Archiver.
func (s *Store) Release(ctx context.Context, receipt []byte) ([]store.ID, error) {
	all, err := s.ledgers(ctx)
	if err != nil || len(receipt) == 0 {
		return nil, err
	}
	if int(receipt[0]) >= len(all) {
		return nil, fmt.Errorf("release: the receipt is of ledger %d: there are %d", receipt[0], len(all))
	}
	return ask(ctx, all[receipt[0]], func(ctx context.Context, e *postgres.Store) ([]store.ID, error) {
		return e.Release(ctx, receipt[1:])
	})
}
