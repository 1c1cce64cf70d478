package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/internal/allot"
)

// SetTenantLimits sets what sets one tenant of a queue apart from others, and leaves
// the queue's other limits as they are; the zero value takes it away. A queue without
// limits gets them by it, and is fair from then on: see SetLimits.
//
// Errors: an *InvalidError; ErrNotFound when it is to be taken away and the queue has
// no limits.
func (c *Client) SetTenantLimits(ctx context.Context, queue, tenant string, t TenantLimits) error {
	if err := errors.Join(ValidateName("queue", queue), ValidateName("tenant", tenant),
		validateOwn("", t)); err != nil {
		return firstOf(err)
	}
	err := c.changeRecord(ctx, allot.RecordKind, queue, func(body []byte) ([]byte, error) {
		var l Limits
		if len(body) > 0 {
			if err := json.Unmarshal(body, &l); err != nil {
				return nil, err
			}
		} else if t == (TenantLimits{}) {
			return nil, ErrNotFound
		}
		if delete(l.Tenants, tenant); t != (TenantLimits{}) {
			if l.Tenants == nil {
				l.Tenants = map[string]TenantLimits{}
			}
			l.Tenants[tenant] = t
		}
		return json.Marshal(l)
	})
	if err != nil {
		return fmt.Errorf("limits of %s: %w", queue, err)
	}
	c.limits.forget()
	return nil
}
