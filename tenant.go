package tusk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tuskqueue/tusk/internal/allot"
)

// SetTenantLimits sets the limits of one tenant of a queue and leaves the queue's other limits unchanged. The zero
// value removes the tenant's limits. A queue without limits gets limits by this call, and is fair from then on:
// see SetLimits.
//
// Errors: an *InvalidError; ErrNotFound if the tenant's limits are to be removed and the queue has no limits.
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
