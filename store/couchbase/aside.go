package couchbase

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/couchbase/gocb/v2"
)

// aside is a copy of a damaged document that was rebuilt. Check reports it until it is removed. Only the latest copy of
// a document is kept.
type aside struct {
	In   string `json:"in"` // the collection
	ID   string `json:"id"`
	Why  string `json:"why"`
	Mend string `json:"mend,omitempty"` // what an operator has to do; empty if nothing
	Was  []byte `json:"was"`
}

const asidePrefix = "damaged|"

// setAside keeps a copy of a damaged document and logs its name.
func (s *Store) setAside(
	ctx context.Context, in *gocb.Collection, id string, raw []byte, damage error, mend string,
) error {
	_ = s.passing(damage)
	a := aside{in.Name(), id, damage.Error(), mend, raw}
	return s.again(ctx, func() error {
		_, err := s.meta.Upsert(asidePrefix+in.Name()+"|"+id, a, &gocb.UpsertOptions{Context: ctx,
			DurabilityLevel: s.durability})
		return err
	})
}

// checkDamage reports the documents that were set aside.
func (s *Store) checkDamage(ctx context.Context) (string, error) {
	const most = 5
	var names, mends []string
	err := s.between(ctx, asidePrefix, "damaged}", func(_ string, m json.RawMessage) error {
		var a aside
		_ = json.Unmarshal(m, &a)
		names = append(names, fmt.Sprintf("%q of collection %s", a.ID, a.In))
		if a.Mend != "" {
			mends = append(mends, a.Mend)
		}
		return nil
	})
	if len(names) == 0 || err != nil {
		return "", err
	}
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("%d more", more))
	}
	mends = append(mends, "remove their copies by "+
		s.placed("DELETE FROM `bucket`.`tusk`.`meta` AS m WHERE META(m).id LIKE 'damaged|%'"))
	return fmt.Sprintf("documents were damaged, and what is known of them otherwise was put in their place: %s; %s",
		strings.Join(names, ", "), strings.Join(mends, ", then ")), nil
}
